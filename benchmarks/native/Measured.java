import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;

/**
 * ZooKeeper's own Java client, measured: does jobs from standard input, see benchmarks/jobs.py.
 *
 * <p>One at a time goes through the blocking methods, pipelined through those with callbacks. CPU
 * time is the process's, so it has the compiler's and the collector's in it; the benchmark warms
 * this client up for longer than the others. The benchmark is asked for it, because the machine's
 * own figure comes in steps of 10 ms.
 */
public final class Measured {
    private static final int SESSION_MS = 1_800_000;
    private static final int NODES = 100;
    private static final int SMALL = 100;
    private static final int TOGETHER = 1000;

    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    private static final String LOCK = "/bench/locks/java-free";

    private final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    private final Map<String, String> addresses;
    private final Map<String, ZooKeeper> connected = new HashMap<>();
    private int made;

    private record Job(String server, String kind, int count, int width, int size) {}

    private Measured(String real, String replay) {
        addresses = Map.of("real", real, "replay", replay);
    }

    public static void main(String[] arguments) throws Exception {
        Measured measured = new Measured(arguments[0], arguments[1]);
        System.out.println("{\"note\": \"ready\"}");
        for (String line = measured.input.readLine(); line != null; line = measured.input.readLine()) {
            String[] words = line.split(" ");
            Job job = new Job(words[0], words[1], Integer.parseInt(words[2]),
                    Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            String answer;
            try {
                answer = measured.run(job);
            } catch (Exception error) {
                answer = "{\"error\": \"" + error.toString().replace('"', '\'') + "\"}";
            }
            System.out.println(answer);
        }
        for (ZooKeeper each : measured.connected.values()) {
            each.close();
        }
    }

    /** A question to the benchmark, see benchmarks/asking.py. */
    private static void ask(String question) {
        System.out.println("{\"ask\": \"" + question + "\"}");
    }

    private long cpu() throws IOException {
        ask("cpu");
        long known = Long.parseLong(input.readLine());
        return known < 0 ? SYSTEM.getProcessCpuTime() : known;
    }

    private static ZooKeeper opened(String address) throws Exception {
        CountDownLatch ready = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper(address, SESSION_MS, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                ready.countDown();
            }
        });
        ready.await();
        return client;
    }

    private ZooKeeper client(Job job) throws Exception {
        ZooKeeper client = connected.get(job.server);
        if (client == null) {
            client = opened(addresses.get(job.server));
            connected.put(job.server, client);
        }
        return client;
    }

    private String run(Job job) throws Exception {
        String verb = job.kind.substring(job.kind.indexOf('-') + 1);
        if (job.kind.equals("connect")) {
            return connects(job);
        }
        if (job.kind.equals("lock")) {
            return locks(job);
        }
        if (job.kind.equals("callbacks")) {
            return watches(job);
        }
        if (!Arrays.asList("get", "create", "set", "delete", "exists", "children").contains(verb)) {
            return "{\"error\": \"not offered\"}";
        }
        ZooKeeper client = client(job);
        boolean real = job.server.equals("real");
        boolean busy = job.kind.startsWith("busy-");
        int count = busy ? job.count : (job.count + job.width - 1) / job.width * job.width;
        String[] paths = paths(job, verb, count);
        byte[] data = new byte[job.size];
        Arrays.fill(data, (byte) 'x');
        if (real && verb.equals("delete")) {
            windows(client, "create", paths, data, TOGETHER);
        }
        String answer = busy ? beside(client, verb, paths, data, job.width - 1)
                : measure(job, client, verb, paths, data);
        if (real && verb.equals("create")) {
            windows(client, "delete", paths, data, TOGETHER);
        }
        return answer;
    }

    private String measure(Job job, ZooKeeper client, String verb, String[] paths, byte[] data)
            throws Exception {
        long[] latencies = null;
        long cpu = cpu();
        long started = System.nanoTime();
        if (job.kind.startsWith("pipelined-")) {
            windows(client, verb, paths, data, job.width);
        } else if (job.kind.startsWith("threads-")) {
            inThreads(client, verb, paths, data, job.width);
        } else {
            latencies = oneByOne(client, verb, paths, data);
        }
        long elapsed = System.nanoTime() - started;
        return outcome(paths.length, elapsed, cpu() - cpu, latencies);
    }

    private String[] paths(Job job, String verb, int count) {
        String[] paths = new String[count];
        for (int n = 0; n < count; n++) {
            paths[n] = switch (verb) {
                case "create", "delete" -> String.format("/bench/new/j-%09d", made++);
                case "children" -> "/bench/n" + job.size;
                default -> String.format("/bench/d%d/%02d", job.size, job.size <= SMALL ? n % NODES : 0);
            };
        }
        return paths;
    }

    private static void one(ZooKeeper client, String verb, String path, byte[] data)
            throws KeeperException, InterruptedException {
        switch (verb) {
            case "get" -> client.getData(path, false, new Stat());
            case "set" -> client.setData(path, data, -1);
            case "exists" -> client.exists(path, false);
            case "children" -> client.getChildren(path, false);
            case "delete" -> client.delete(path, -1);
            default -> client.create(path, data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        }
    }

    private static long[] oneByOne(ZooKeeper client, String verb, String[] paths, byte[] data)
            throws Exception {
        long[] latencies = new long[paths.length];
        long mark = System.nanoTime();
        for (int n = 0; n < paths.length; n++) {
            one(client, verb, paths[n], data);
            long now = System.nanoTime();
            latencies[n] = now - mark;
            mark = now;
        }
        return latencies;
    }

    private static void windows(ZooKeeper client, String verb, String[] paths, byte[] data, int width)
            throws Exception {
        AtomicInteger failure = new AtomicInteger();
        for (int start = 0; start < paths.length; start += width) {
            int end = Math.min(paths.length, start + width);
            CountDownLatch done = new CountDownLatch(end - start);
            for (int n = start; n < end; n++) {
                begin(client, verb, paths[n], data, code -> {
                    if (code != 0) {
                        failure.set(code);
                    }
                    done.countDown();
                });
            }
            done.await();
        }
        if (failure.get() != 0) {
            throw KeeperException.create(KeeperException.Code.get(failure.get()));
        }
    }

    private interface Ended {
        void with(int code);
    }

    private static void begin(ZooKeeper client, String verb, String path, byte[] data, Ended ended) {
        switch (verb) {
            case "get" -> client.getData(path, false, (code, p, c, d, s) -> ended.with(code), null);
            case "set" -> client.setData(path, data, -1, (code, p, c, s) -> ended.with(code), null);
            case "exists" -> client.exists(path, false, (code, p, c, s) -> ended.with(code), null);
            case "children" ->
                client.getChildren(path, false, (int code, String p, Object c, java.util.List<String> l)
                        -> ended.with(code), null);
            case "delete" -> client.delete(path, -1, (code, p, c) -> ended.with(code), null);
            default -> client.create(path, data, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT,
                    (int code, String p, Object c, String name) -> ended.with(code), null);
        }
    }

    private static void inThreads(ZooKeeper client, String verb, String[] paths, byte[] data, int width)
            throws Exception {
        Thread[] threads = new Thread[width];
        for (int t = 0; t < width; t++) {
            int first = t;
            threads[t] = new Thread(() -> {
                try {
                    for (int n = first; n < paths.length; n += width) {
                        one(client, verb, paths[n], data);
                    }
                } catch (KeeperException | InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            });
            threads[t].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    /** The latencies of one thread while others call, too; CPU time for one call of any. */
    private String beside(ZooKeeper client, String verb, String[] paths, byte[] data, int width)
            throws Exception {
        AtomicBoolean over = new AtomicBoolean();
        AtomicLong done = new AtomicLong();
        Thread[] threads = new Thread[width];
        for (int t = 0; t < width; t++) {
            threads[t] = new Thread(() -> {
                try {
                    for (int n = 0; !over.get(); n++) {
                        one(client, verb, paths[n % paths.length], data);
                        done.incrementAndGet();
                    }
                } catch (KeeperException | InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            });
            threads[t].start();
        }
        long before = done.get();
        long cpu = cpu();
        long started = System.nanoTime();
        long[] latencies = oneByOne(client, verb, paths, data);
        long elapsed = System.nanoTime() - started;
        long used = cpu() - cpu;
        long calls = paths.length + done.get() - before;
        over.set(true);
        for (Thread thread : threads) {
            thread.join();
        }
        return outcome(paths.length, elapsed, used * paths.length / calls, latencies);
    }

    private String connects(Job job) throws Exception {
        long[] latencies = new long[job.count];
        long all = 0;
        long used = 0;
        for (int n = 0; n < job.count; n++) {
            long cpu = cpu();
            long started = System.nanoTime();
            ZooKeeper client = opened(addresses.get(job.server));
            latencies[n] = System.nanoTime() - started;
            all += latencies[n];
            used += cpu() - cpu;
            client.close();
        }
        return outcome(job.count, all, used, latencies);
    }

    private String locks(Job job) throws Exception {
        ZooKeeper client = client(job);
        try {
            client.create(LOCK, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        } catch (KeeperException.NodeExistsException fromBefore) {
            // as it should be
        }
        long[] latencies = new long[job.count];
        long used = cpu();
        long started = System.nanoTime();
        long mark = started;
        for (int n = 0; n < job.count; n++) {
            cycle(client);
            long now = System.nanoTime();
            latencies[n] = now - mark;
            mark = now;
        }
        return outcome(job.count, mark - started, cpu() - used, latencies);
    }

    /** A free lock by the plain recipe: sequential node, list, see that it is the first, delete. */
    private static void cycle(ZooKeeper client) throws KeeperException, InterruptedException {
        String own = client.create(LOCK + "/lock-", new byte[0], Ids.OPEN_ACL_UNSAFE,
                CreateMode.EPHEMERAL_SEQUENTIAL);
        for (String name : client.getChildren(LOCK, false)) {
            if (name.compareTo(own.substring(LOCK.length() + 1)) < 0) {
                throw new IllegalStateException("the lock is not free");
            }
        }
        client.delete(own, -1);
    }

    private String watches(Job job) throws Exception {
        ZooKeeper client = client(job);
        ask("nodes " + job.count + " " + job.width);
        String parent = input.readLine();
        CountDownLatch events = new CountDownLatch(job.count);
        Watcher watcher = event -> {
            if (event.getType() == Watcher.Event.EventType.NodeDeleted) {
                events.countDown();
            }
        };
        CountDownLatch set = new CountDownLatch(job.count);
        for (int n = 0; n < job.count; n++) {
            client.getData(String.format("%s/t%06d", parent, n), watcher,
                    (code, path, context, data, stat) -> set.countDown(), null);
        }
        set.await();
        long used = cpu();
        long started = System.nanoTime();
        ask("delete");
        events.await();
        long elapsed = System.nanoTime() - started;
        input.readLine();
        return outcome(job.count, elapsed, cpu() - used, null);
    }

    private static String outcome(int ops, long elapsed, long cpu, long[] latencies) throws Exception {
        String pages = Files.readString(Path.of("/proc/self/statm")).split(" ")[1];
        String text = String.format(Locale.ROOT,
                "{\"ops\": %d, \"seconds\": %.9f, \"cpu_seconds\": %.9f, \"rss\": %d",
                ops, elapsed / 1e9, cpu / 1e9, Long.parseLong(pages) * 4096);
        if (latencies != null) {
            Arrays.sort(latencies);
            text += String.format(Locale.ROOT, ", \"p50\": %.2f, \"p99\": %.2f",
                    latencies[latencies.length / 2] / 1e3, latencies[latencies.length * 99 / 100] / 1e3);
        }
        return text + "}";
    }
}
