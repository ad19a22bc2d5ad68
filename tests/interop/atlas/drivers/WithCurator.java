// Apache Curator, as its pages Getting Started, Error Handling and Shared Reentrant Lock use it.
// The lines are those of lines.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;

public class WithCurator {
    static class Session {
        final String name;
        CuratorFramework client;
        final Map<String, InterProcessMutex> locks = new ConcurrentHashMap<>();
        final Map<String, ExecutorService> holders = new ConcurrentHashMap<>(); // a lock is a thread's

        Session(String name) {
            this.name = name;
        }

        void told(WatchedEvent event) {
            if (event.getType() != Watcher.Event.EventType.None) {
                say("* " + name + " event " + event.getType() + " " + event.getPath());
            }
        }

        String call(String command, String[] w) throws Exception {
            switch (command) {
                case "connect":
                    int timeout = Integer.parseInt(w[1]);
                    client = CuratorFrameworkFactory.newClient(
                            w[0], timeout, timeout, new ExponentialBackoffRetry(1000, 3));
                    client.getConnectionStateListenable().addListener(
                            (c, state) -> say("* " + name + " state " + state));
                    client.start();
                    client.blockUntilConnected();
                    return "";
                case "create":
                    return client.create().forPath(w[0], w[1].getBytes());
                case "retried":
                    return client.create().idempotent().forPath(w[0], w[1].getBytes());
                case "sequential":
                    return client.create().withMode(CreateMode.PERSISTENT_SEQUENTIAL).forPath(w[0], w[1].getBytes());
                case "protected":
                    return client.create().withProtection().withMode(CreateMode.PERSISTENT_SEQUENTIAL)
                            .forPath(w[0], w[1].getBytes());
                case "ephemeral":
                    return client.create().withMode(CreateMode.EPHEMERAL).forPath(w[0], w[1].getBytes());
                case "set":
                    client.setData().withVersion(Integer.parseInt(w[2])).forPath(w[0], w[1].getBytes());
                    return "";
                case "delete":
                    client.delete().withVersion(Integer.parseInt(w[1])).forPath(w[0]);
                    return "";
                case "multi":
                    client.transaction().forOperations(
                            client.transactionOp().create().forPath(w[0], new byte[0]),
                            client.transactionOp().setData().withVersion(Integer.parseInt(w[2]))
                                    .forPath(w[1], new byte[] {'x'}));
                    return "";
                case "get":
                    return new String(client.getData().forPath(w[0]));
                case "flood":
                    return flood(w[0], Integer.parseInt(w[1]), Integer.parseInt(w[2]), w.length > 3);
                case "watch":
                    return watch(w[0], w[1]);
                case "lock":
                case "trylock":
                    return lock(w[0], Long.parseLong(w[1]));
                case "held":
                    return locks.get(w[0]).isAcquiredInThisProcess() ? "yes" : "no";
                case "work":
                    return work(locks.get(w[0]), w[0]);
                case "unlock":
                    return holders.get(w[0]).submit(() -> {
                        locks.get(w[0]).release();
                        return "";
                    }).get();
                case "close":
                    client.close();
                    return "";
                default:
                    return null;
            }
        }

        String flood(String path, int count, int size, boolean close) throws Exception {
            AtomicReferenceArray<String> ends = new AtomicReferenceArray<>(count);
            byte[] data = "x".repeat(size).getBytes();
            CountDownLatch all = new CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                int index = i;
                client.setData().inBackground((c, event) -> {
                    int code = event.getResultCode();
                    ends.set(index, code == 0 ? "ok" : KeeperException.Code.get(code).toString());
                    all.countDown();
                }).forPath(path, data);
            }
            if (close) {
                client.close();
            }
            all.await(20, TimeUnit.SECONDS);
            return outcomes(ends);
        }

        String watch(String kind, String path) throws Exception {
            Watcher watcher = this::told;
            switch (kind) {
                case "data": client.getData().usingWatcher(watcher).forPath(path); break;
                case "children": client.getChildren().usingWatcher(watcher).forPath(path); break;
                case "follow":
                    follow(path);
                    break;
                case "persistent":
                    client.watchers().add().withMode(AddWatchMode.PERSISTENT).usingWatcher(watcher).forPath(path);
                    break;
                default:
                    client.watchers().add().withMode(AddWatchMode.PERSISTENT_RECURSIVE).usingWatcher(watcher).forPath(path);
            }
            return "";
        }

        void follow(String path) throws Exception {
            CuratorCache cache = CuratorCache.build(client, path, CuratorCache.Options.SINGLE_NODE_CACHE);
            CountDownLatch initialized = new CountDownLatch(1);
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forChanges((before, after) -> say("* " + name + " event data -"))
                    .forInitialized(initialized::countDown).build());
            cache.start();
            initialized.await();
        }

        String lock(String path, long milliseconds) throws Exception {
            InterProcessMutex lock = new InterProcessMutex(client, path);
            locks.put(path, lock);
            ExecutorService holder = Executors.newSingleThreadExecutor();
            holders.put(path, holder);
            try {
                return holder.submit(() -> lock.acquire(milliseconds, TimeUnit.MILLISECONDS)).get()
                        ? "held" : "not held";
            } catch (java.util.concurrent.ExecutionException error) {
                throw (Exception) error.getCause();
            }
        }

        // Write elsewhere while the lock says that it is held.
        String work(InterProcessMutex lock, String path) throws Exception {
            while (lock.isAcquiredInThisProcess()) {
                say("* " + name + " event wrote " + path);
                Thread.sleep(10);
            }
            return "";
        }
    }

    static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    // How many in a row have the same end.
    static String outcomes(AtomicReferenceArray<String> ends) {
        StringBuilder text = new StringBuilder();
        for (int i = 0, next; i < ends.length(); i = next) {
            String end = ends.get(i) == null ? "no answer" : ends.get(i);
            next = i;
            while (next < ends.length() && end.equals(ends.get(next) == null ? "no answer" : ends.get(next))) {
                next++;
            }
            text.append(i > 0 ? ", " : "").append(next - i).append("*").append(end);
        }
        return text.toString();
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Session> sessions = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in));
        say("ready");
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] words = line.split(" ");
            if (words[2].equals("exit")) {
                System.exit(0);
            }
            Session session = sessions.computeIfAbsent(words[1], Session::new);
            pool.submit(() -> {
                try {
                    String result = session.call(words[2], Arrays.copyOfRange(words, 3, words.length));
                    say(words[0] + (result == null ? " lacks" : " ok " + result));
                } catch (Throwable error) {
                    Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
                    say(words[0] + " error " + cause.getClass().getSimpleName());
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }
}
