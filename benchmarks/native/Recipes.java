import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.api.CuratorWatcher;
import org.apache.curator.framework.api.transaction.CuratorOp;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.queue.DistributedQueue;
import org.apache.curator.framework.recipes.queue.QueueBuilder;
import org.apache.curator.framework.recipes.queue.QueueConsumer;
import org.apache.curator.framework.recipes.queue.QueueSerializer;
import org.apache.curator.framework.recipes.queue.SimpleDistributedQueue;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.CreateMode;

/**
 * Curator's recipes, measured: does jobs from standard input, see benchmarks/jobs.py.
 *
 * <p>The jobs are those of benchmarks/classic.py and benchmarks/cache.py. CPU time is the whole
 * process's, the compiler and the collector included; the benchmark is asked for it.
 */
public final class Recipes {
    private static final int SESSION_MS = 60_000;
    private static final int TOGETHER = 100;
    private static final byte[] DATA = new byte[100];

    private final BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    private final String hosts;
    private final CuratorFramework client;
    private int made;

    private record Job(String kind, int count, int width, String path) {}

    /** What is measured; it returns how many operations it has done. */
    private interface Work {
        long run() throws Exception;
    }

    private Recipes(String hosts) throws Exception {
        this.hosts = hosts;
        client = started();
    }

    public static void main(String[] arguments) throws Exception {
        Arrays.fill(DATA, (byte) 'x');
        Recipes recipes = new Recipes(arguments[0]);
        System.out.println("{\"note\": \"ready\"}");
        for (String line = recipes.input.readLine(); line != null; line = recipes.input.readLine()) {
            String[] words = line.split(" ");
            String path = "/curator-" + recipes.made++;
            Job job = new Job(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), path);
            String answer;
            try {
                answer = recipes.run(job);
            } catch (Exception error) {
                answer = "{\"error\": \"" + error.toString().replace('"', '\'') + "\"}";
            }
            System.out.println(answer);
        }
        recipes.client.close();
    }

    private CuratorFramework started() throws Exception {
        CuratorFramework made = CuratorFrameworkFactory.newClient(
                hosts, SESSION_MS, SESSION_MS, new RetryNTimes(3, 100));
        made.start();
        made.blockUntilConnected();
        return made;
    }

    private String run(Job job) throws Exception {
        return switch (job.kind) {
            case "add" -> add(job);
            case "add-threads" -> addByThreads(job);
            case "add-writers" -> addByWriters(job);
            case "put" -> put(job);
            case "put_many" -> putMany(job);
            case "get" -> get(job);
            case "take" -> take(job);
            case "watch_data" -> watchData(job);
            case "cache" -> cache(job);
            case "callbacks" -> callbacks(job);
            default -> "{\"error\": \"not offered\"}";
        };
    }

    private String measured(Work work) throws Exception {
        long before = memory();
        long cpu = cpu();
        long started = System.nanoTime();
        long done = work.run();
        long elapsed = System.nanoTime() - started;
        long used = cpu() - cpu;
        return String.format(Locale.ROOT,
                "{\"ops\": %d, \"seconds\": %.9f, \"cpu_seconds\": %.9f, \"rss\": %d, \"added\": %d}",
                done, elapsed / 1e9, used / 1e9, memory(), (memory() - before) / 1024);
    }

    private long cpu() throws Exception {
        System.out.println("{\"ask\": \"cpu\"}");
        return Long.parseLong(input.readLine());
    }

    private static long memory() throws Exception {
        return Long.parseLong(Files.readString(Path.of("/proc/self/statm")).split(" ")[1]) * 4096;
    }

    private static void inThreads(int width, Callable<Void> work) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < width; t++) {
            Thread thread = new Thread(() -> {
                try {
                    work.call();
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    // --- a counter -----------------------------------------------------------------------------

    /** What SharedCount has for a change that is not lost: try with the version that is known. */
    private static boolean addOne(SharedCount count) throws Exception {
        var seen = count.getVersionedValue();
        return count.trySetCount(seen, seen.getValue() + 1);
    }

    private String add(Job job) throws Exception {
        try (SharedCount count = new SharedCount(client, job.path, 0)) {
            count.start();
            addOne(count);
            return measured(() -> {
                int done = 0;
                while (done < job.count) {
                    done += addOne(count) ? 1 : 0;
                }
                return done;
            });
        }
    }

    /** So many threads on one counter, for `count` milliseconds. */
    private String addByThreads(Job job) throws Exception {
        try (SharedCount count = new SharedCount(client, job.path, 0)) {
            count.start();
            return addForAWhile(job, List.of(count), job.width);
        }
    }

    /** So many clients, each with a counter and a thread of its own. */
    private String addByWriters(Job job) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        List<SharedCount> counts = new ArrayList<>();
        try {
            for (int n = 0; n < job.width; n++) {
                clients.add(started());
                counts.add(new SharedCount(clients.get(n), job.path, 0));
                counts.get(n).start();
            }
            return addForAWhile(job, counts, job.width);
        } finally {
            for (SharedCount count : counts) {
                count.close();
            }
            clients.forEach(CuratorFramework::close);
        }
    }

    private String addForAWhile(Job job, List<SharedCount> counts, int width) throws Exception {
        AtomicLong done = new AtomicLong();
        AtomicLong turn = new AtomicLong();
        return measured(() -> {
            long ends = System.nanoTime() + job.count * 1_000_000L;
            inThreads(width, () -> {
                SharedCount count = counts.get((int) (turn.getAndIncrement() % counts.size()));
                while (System.nanoTime() < ends) {
                    done.addAndGet(addOne(count) ? 1 : 0);
                }
                return null;
            });
            return Math.max(1, done.get());
        });
    }

    // --- a queue -------------------------------------------------------------------------------

    private String put(Job job) throws Exception {
        SimpleDistributedQueue queue = new SimpleDistributedQueue(client, job.path);
        queue.offer(DATA);
        return measured(() -> {
            inThreads(job.width, () -> {
                for (int n = 0; n < job.count / job.width; n++) {
                    queue.offer(DATA);
                }
                return null;
            });
            return job.count / job.width * job.width;
        });
    }

    /** Its queues put one at a time, or many into one node; this is its transaction. */
    private void putTogether(String folder, String name, int count) throws Exception {
        for (int start = 0; start < count; start += TOGETHER) {
            List<CuratorOp> creates = new ArrayList<>();
            for (int n = start; n < Math.min(count, start + TOGETHER); n++) {
                creates.add(client.transactionOp().create()
                        .withMode(CreateMode.PERSISTENT_SEQUENTIAL)
                        .forPath(folder + "/" + name, DATA));
            }
            client.transaction().forOperations(creates);
        }
    }

    private String putMany(Job job) throws Exception {
        client.create().forPath(job.path);
        return measured(() -> {
            putTogether(job.path, "qn-", job.count);
            return job.count;
        });
    }

    private String get(Job job) throws Exception {
        client.create().forPath(job.path);
        putTogether(job.path, "qn-", job.width);
        SimpleDistributedQueue queue = new SimpleDistributedQueue(client, job.path);
        return measured(() -> {
            for (int n = 0; n < job.count; n++) {
                queue.remove();
            }
            return job.count;
        });
    }

    /** Of its DistributedQueue with a path for locks: an item stays until it has been used. */
    private String take(Job job) throws Exception {
        CountDownLatch left = new CountDownLatch(job.count);
        QueueSerializer<byte[]> plain = new QueueSerializer<>() {
            @Override
            public byte[] serialize(byte[] item) {
                return item;
            }

            @Override
            public byte[] deserialize(byte[] bytes) {
                return bytes;
            }
        };
        QueueConsumer<byte[]> consumer = new QueueConsumer<>() {
            @Override
            public void consumeMessage(byte[] item) {
                left.countDown();
            }

            @Override
            public void stateChanged(CuratorFramework from, ConnectionState state) {}
        };
        try (DistributedQueue<byte[]> filling =
                QueueBuilder.builder(client, null, plain, job.path).buildQueue()) {
            filling.start();
            for (int n = 0; n < job.count; n++) {
                filling.put(DATA);
            }
            filling.flushPuts(1, java.util.concurrent.TimeUnit.MINUTES);
        }
        try (DistributedQueue<byte[]> queue = QueueBuilder.builder(client, consumer, plain, job.path)
                .lockPath(job.path + "-locks").buildQueue()) {
            return measured(() -> {
                queue.start();
                left.await();
                return job.count;
            });
        }
    }

    // --- what follows a node, and a tree ---------------------------------------------------------

    /** Each change is told before the next is made; the writer is ZooKeeper's own client. */
    private String watchData(Job job) throws Exception {
        client.create().forPath(job.path, new byte[0]);
        Semaphore told = new Semaphore(0);
        try (CuratorCache cache = CuratorCache.build(
                client, job.path, CuratorCache.Options.SINGLE_NODE_CACHE);
                CuratorFramework other = started()) {
            cache.listenable().addListener(CuratorCacheListener.builder()
                    .forAll((type, old, now) -> told.release()).build());
            cache.start();
            told.acquire();
            var writer = other.getZookeeperClient().getZooKeeper();
            return measured(() -> {
                for (int n = 0; n < job.count; n++) {
                    writer.setData(job.path, DATA, -1);
                    told.acquire();
                }
                return job.count;
            });
        }
    }

    /** One watch for each node, set in the background; the benchmark deletes the nodes. */
    private String callbacks(Job job) throws Exception {
        System.out.println("{\"ask\": \"nodes " + job.count + " " + job.width + "\"}");
        String parent = input.readLine();
        CountDownLatch set = new CountDownLatch(job.count);
        CountDownLatch events = new CountDownLatch(job.count);
        CuratorWatcher watcher = event -> events.countDown();
        for (int n = 0; n < job.count; n++) {
            client.getData().usingWatcher(watcher).inBackground((from, done) -> set.countDown())
                    .forPath(String.format("%s/t%06d", parent, n));
        }
        set.await();
        return measured(() -> {
            System.out.println("{\"ask\": \"delete\"}");
            events.await();
            input.readLine();
            return job.count;
        });
    }

    /** The tree of benchmarks/cache.py, whose `count` nodes are there. */
    private String cache(Job job) throws Exception {
        CountDownLatch ready = new CountDownLatch(1);
        CuratorCache cache = CuratorCache.build(client, "/tree");
        try {
            cache.listenable().addListener(
                    CuratorCacheListener.builder().forInitialized(ready::countDown).build());
            return measured(() -> {
                cache.start();
                ready.await();
                return cache.size();
            });
        } finally {
            cache.close();
        }
    }
}
