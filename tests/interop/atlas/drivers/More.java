// What ZooKeeper's own Java client is asked for beside the calls of the atlas: what is compared on the
// embedded server and on a real one, in tests/interop/other_clients/script.txt.

import java.util.Collections;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.Collectors;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.OpResult;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.client.FourLetterWordMain;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

class More {
    private static final int MILLISECONDS = 10_000;
    private static final byte[] X = {'x'};
    private static final List<ACL> OPEN = ZooDefs.Ids.OPEN_ACL_UNSAFE;

    static String call(ZooKeeper zk, Watcher watcher, String command, String[] w) throws Exception {
        switch (command) {
            case "unwatch":
                zk.removeWatches(w[1], watcher, Watcher.WatcherType.valueOf(w[0]), false);
                return "";
            case "sync": {
                CompletableFuture<String> synced = new CompletableFuture<>();
                zk.sync(w[0], (code, path, context) -> synced.complete(code + " " + path), null);
                return synced.get();
            }
            case "container":
                return zk.create(w[0], X, OPEN, CreateMode.CONTAINER);
            case "ttl":
                return zk.create(w[0], X, OPEN, CreateMode.valueOf(w[2]), new Stat(), Long.parseLong(w[1]));
            case "create2": {
                Stat stat = new Stat();
                return zk.create(w[0], X, OPEN, CreateMode.PERSISTENT, stat) + " " + Lines.shown(stat);
            }
            case "big":
                return zk.create(w[0], new byte[Integer.parseInt(w[1])], OPEN, CreateMode.PERSISTENT);
            case "count":
                return "" + zk.getAllChildrenNumber(w[0]);
            case "ephemerals":
                return Lines.sorted(zk.getEphemerals(w[0]));
            case "acl":
                return zk.getACL(w[0], null).toString();
            case "setacl": {
                ACL acl = new ACL(Integer.parseInt(w[1]), new Id(w[2], w[3]));
                zk.setACL(w[0], Collections.singletonList(acl), Integer.parseInt(w[4]));
                return "";
            }
            case "whoami":
                return zk.whoAmI().stream().map(info -> info.getAuthScheme() + ":" + info.getUser()).sorted()
                        .collect(Collectors.joining(", "));
            case "reconfig":
                try (ZooKeeperAdmin admin = new ZooKeeperAdmin(w[0], MILLISECONDS, event -> { })) {
                    return new String(admin.reconfigure((String) null, w[1], null, -1, new Stat()));
                }
            case "ops":
                return ops(zk, w[0], Integer.parseInt(w[1]));
            case "intrude":
                return intrude(w[0], zk.getSessionId());
            case "word": {
                String[] address = w[0].split(":");
                String said = FourLetterWordMain.send4LetterWord(address[0], Integer.parseInt(address[1]), w[1]);
                return said.lines().map(line -> line.split("[:=]")[0]).collect(Collectors.joining(", "));
            }
            default:
                return null;
        }
    }

    /** A transaction of each operation, and what its parts have come to. */
    private static String ops(ZooKeeper zk, String path, int version) throws Exception {
        List<OpResult> results;
        String code = "";
        try {
            results = zk.multi(List.of(Op.check(path, version), Op.create(path + "/m", X, OPEN, CreateMode.PERSISTENT),
                    Op.create(path + "/m/s-", X, OPEN, CreateMode.EPHEMERAL_SEQUENTIAL),
                    Op.setData(path + "/m", X, 0), Op.delete(path + "/m/s-0000000000", -1)));
        } catch (KeeperException error) {
            code = error.code() + " ";
            results = error.getResults();
        }
        return code + results.stream().map(More::shown).collect(Collectors.joining(", "));
    }

    private static String shown(OpResult result) {
        if (result instanceof OpResult.CreateResult) {
            return ((OpResult.CreateResult) result).getPath();
        }
        if (result instanceof OpResult.SetDataResult) {
            return Lines.shown(((OpResult.SetDataResult) result).getStat());
        }
        return result instanceof OpResult.ErrorResult ? "" + ((OpResult.ErrorResult) result).getErr() : "done";
    }

    /** The state of one who resumes the session with another password. */
    private static String intrude(String hosts, long session) throws Exception {
        BlockingQueue<Object> seen = new LinkedBlockingQueue<>();
        ZooKeeper other = new ZooKeeper(hosts, MILLISECONDS, event -> seen.add(event.getState()), session, new byte[16]);
        Object state = seen.take();
        other.close();
        return "" + state;
    }
}
