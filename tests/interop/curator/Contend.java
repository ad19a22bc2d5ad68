// Curator's contenders for one lock, before the arbiter; see tests/interop/neighbours/arbiter.py.
//
// Arguments: HOSTS PATH PORT RECIPE COUNT. Each contender has a client of its own, and begins with a
// new one behind each error.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.util.HexFormat;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.ZooKeeper;

public class Contend {
    private static final int SESSION_MILLISECONDS = 4_000;
    private static final int CONNECT_MILLISECONDS = 30_000;
    private static final long ACQUIRE_SECONDS = 90;
    private static final int LEASES = 2;
    private static final long PAUSE_MILLISECONDS = 100; // behind an error

    private final String hosts;
    private final String path;
    private final String recipe;
    private final BufferedReader answers;
    private final PrintStream lines;

    private Contend(String hosts, String path, int port, String recipe) throws IOException {
        this.hosts = hosts;
        this.path = path;
        this.recipe = recipe;
        Socket socket = new Socket("127.0.0.1", port);
        socket.setTcpNoDelay(true);
        answers = new BufferedReader(new InputStreamReader(socket.getInputStream()));
        lines = new PrintStream(socket.getOutputStream(), true);
    }

    public static void main(String[] words) throws Exception {
        for (int number = Integer.parseInt(words[4]); number > 0; number--) {
            String recipe = !words[3].equals("read-write") ? words[3]
                    : number % 2 == 0 ? "write" : "read";
            Contend one = new Contend(words[0], words[1], Integer.parseInt(words[2]), recipe);
            new Thread(one::run).start();
        }
    }

    private void run() {
        for (boolean more = true; more; ) {
            try (CuratorFramework client = CuratorFrameworkFactory.newClient(
                    hosts, SESSION_MILLISECONDS, CONNECT_MILLISECONDS, new RetryNTimes(5, 100))) {
                client.start();
                while (more) {
                    more = turn(client);
                }
            } catch (Exception error) {
                lines.println("trouble curator " + error.getClass().getSimpleName());
                more = "again".equals(answer());
                pause();
            }
        }
    }

    /** Acquire, hold and release once; whether there are more turns. */
    private boolean turn(CuratorFramework client) throws Exception {
        if (recipe.equals("semaphore")) {
            InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, LEASES);
            try (Lease lease = semaphore.acquire(ACQUIRE_SECONDS, TimeUnit.SECONDS)) {
                check(lease != null);
                return hold(client, "lease");
            }
        }
        if (recipe.equals("latch")) {
            try (LeaderLatch latch = new LeaderLatch(client, path)) {
                latch.start();
                check(latch.await(ACQUIRE_SECONDS, TimeUnit.SECONDS));
                return hold(client, "alone");
            }
        }
        if (recipe.equals("selector")) {
            return select(client);
        }
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        InterProcessMutex mutex = recipe.equals("read") ? both.readLock()
                : recipe.equals("write") ? both.writeLock() : new InterProcessMutex(client, path);
        check(mutex.acquire(ACQUIRE_SECONDS, TimeUnit.SECONDS));
        try {
            return hold(client, recipe.equals("read") ? "shared" : "alone");
        } finally {
            mutex.release();
        }
    }

    /** One term of a LeaderSelector, which calls back in a thread of its own. */
    private boolean select(CuratorFramework client) throws Exception {
        CompletableFuture<Boolean> term = new CompletableFuture<>();
        LeaderSelectorListenerAdapter listener = new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework ignored) {
                try {
                    term.complete(hold(client, "alone"));
                } catch (Exception error) {
                    term.completeExceptionally(error);
                }
            }
        };
        try (LeaderSelector selector = new LeaderSelector(client, path, listener)) {
            selector.start();
            return term.get(ACQUIRE_SECONDS, TimeUnit.SECONDS);
        }
    }

    private static void check(boolean acquired) throws InterruptedException {
        if (!acquired) {
            throw new InterruptedException("not acquired in time");
        }
    }

    private boolean hold(CuratorFramework client, String mode) throws Exception {
        ZooKeeper session = client.getZookeeperClient().getZooKeeper();
        String password = HexFormat.of().formatHex(session.getSessionPasswd());
        lines.println("enter curator " + mode + " " + session.getSessionId() + " " + password);
        String answer = answer();
        if (!answer.startsWith("hold ")) {
            return false;
        }
        TimeUnit.MICROSECONDS.sleep((long) (Double.parseDouble(answer.substring(5)) * 1e6));
        lines.println("leave");
        answer();
        return true;
    }

    private String answer() {
        try {
            String line = answers.readLine();
            return line == null ? "end" : line;
        } catch (IOException error) {
            return "end";
        }
    }

    private static void pause() {
        try {
            TimeUnit.MILLISECONDS.sleep(PAUSE_MILLISECONDS);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
