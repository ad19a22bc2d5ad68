// Apache Curator's recipes, called by lines: those of tests/interop/atlas/drivers/Lines.java, with the
// name of a recipe, that of an object and arguments as words.

import java.io.Closeable;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.AtomicValue;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.nodes.GroupMember;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.recipes.shared.VersionedValue;
import org.apache.curator.retry.RetryNTimes;
import org.apache.zookeeper.ZooKeeper;

public class BesideCurator extends Lines {
    private static final int SESSION_MILLISECONDS = 20_000;
    private static final int TRIES = 5; // of one add of a DistributedAtomicLong

    private final Map<String, Object> made = new ConcurrentHashMap<>();
    private CuratorFramework client;

    private BesideCurator(String name) {
        super(name);
    }

    public static void main(String[] arguments) throws Exception {
        serve(BesideCurator::new, "");
    }

    private String connect(String hosts) throws Exception {
        client = CuratorFrameworkFactory.newClient(
                hosts, SESSION_MILLISECONDS, SESSION_MILLISECONDS, new RetryNTimes(3, 100));
        client.start();
        client.blockUntilConnected();
        return "";
    }

    private String close() {
        client.close();
        return "";
    }

    @Override
    String call(String recipe, String[] words) throws Exception {
        String name = words[0];
        String[] rest = Arrays.copyOfRange(words, 1, words.length);
        switch (recipe) {
            case "connect":
                return connect(name);
            case "close":
                return close();
            case "count":
                return count(name, Integer.parseInt(rest[0]), Integer.parseInt(rest[1]));
            case "session":
                return session();
            case "long":
                return atomicLong(name, Integer.parseInt(rest[0]), Long.parseLong(rest[1]));
            case "barrier":
                return barrier(new DistributedBarrier(client, name), rest);
            case "double":
                return doubleBarrier(name, rest);
            default:
                return group(name, rest);
        }
    }

    /** The id of the session, and its password in hex. */
    private String session() throws Exception {
        ZooKeeper keeper = client.getZookeeperClient().getZooKeeper();
        return keeper.getSessionId() + " " + HexFormat.of().formatHex(keeper.getSessionPasswd());
    }

    /** Add so many times; the number, and how many tries have failed. */
    private String count(String path, int times, int number) throws Exception {
        int failed = 0;
        try (SharedCount count = new SharedCount(client, path, 0)) {
            count.start();
            for (int added = 0; added < times; ) {
                VersionedValue<Integer> seen = count.getVersionedValue();
                if (count.trySetCount(seen, seen.getValue() + number)) {
                    added++;
                } else {
                    failed++;
                }
            }
            return count.getCount() + " " + failed;
        }
    }

    /** Add so many times; the number, and how many calls have not succeeded. */
    private String atomicLong(String path, int times, long number) throws Exception {
        int failed = 0;
        DistributedAtomicLong atomic =
                new DistributedAtomicLong(client, path, new RetryNTimes(TRIES, 1));
        for (int called = 0; called < times; called++) {
            AtomicValue<Long> value = atomic.add(number);
            failed += value.succeeded() ? 0 : 1;
        }
        return atomic.get().postValue() + " " + failed;
    }

    private String barrier(DistributedBarrier barrier, String[] rest) throws Exception {
        switch (rest[0]) {
            case "set":
                barrier.setBarrier();
                return "set";
            case "remove":
                barrier.removeBarrier();
                return "removed";
            default:
                return "" + barrier.waitOnBarrier(Long.parseLong(rest[1]), TimeUnit.MILLISECONDS);
        }
    }

    private String doubleBarrier(String name, String[] rest) throws Exception {
        long limit = Long.parseLong(rest[1]);
        if (rest[0].equals("leave")) {
            DistributedDoubleBarrier member = (DistributedDoubleBarrier) made.remove(name);
            return "" + member.leave(limit, TimeUnit.MILLISECONDS);
        }
        DistributedDoubleBarrier member =
                new DistributedDoubleBarrier(client, rest[2], Integer.parseInt(rest[3]));
        made.put(name, member);
        return "" + member.enter(limit, TimeUnit.MILLISECONDS);
    }

    private String group(String name, String[] rest) throws Exception {
        if (rest[0].equals("join")) {
            GroupMember member = new GroupMember(client, rest[1], name, bytes(rest[2]));
            made.put(name, member);
            member.start();
            return "joined";
        }
        GroupMember member = (GroupMember) made.get(name);
        switch (rest[0]) {
            case "set":
                member.setThisData(bytes(rest[1]));
                return "set";
            case "members":
                Map<String, String> members = new TreeMap<>();
                member.getCurrentMembers().forEach(
                        (id, data) -> members.put(id, new String(data, StandardCharsets.UTF_8)));
                return members.toString();
            default:
                ((Closeable) made.remove(name)).close();
                return "left";
        }
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
