// ZooKeeper's own Java client, as the ZooKeeper Programmer's Guide uses it, and the WriteLock of
// its recipes. The lines are those of lines.py.

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Version;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

public class Plain extends Lines {
    private final Watcher watcher = this::told;
    private ZooKeeper zk;
    private final Map<String, WriteLock> locks = new ConcurrentHashMap<>();

    private Plain(String name) {
        super(name);
    }

    public static void main(String[] arguments) throws Exception {
        serve(Plain::new, Version.getVersion());
    }

    private void told(WatchedEvent event) {
        if (event.getType() == Watcher.Event.EventType.None) {
            state(event.getState());
        } else {
            event(event);
        }
    }

    String call(String command, String[] w) throws Exception {
        switch (command) {
            case "connect": {
                CountDownLatch connected = new CountDownLatch(1);
                zk = new ZooKeeper(w[0], Integer.parseInt(w[1]), event -> {
                    told(event);
                    if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                        connected.countDown();
                    }
                });
                connected.await();
                return "";
            }
            case "create":
                return create(w, CreateMode.PERSISTENT);
            case "sequential":
                return create(w, CreateMode.PERSISTENT_SEQUENTIAL);
            case "ephemeral":
                return create(w, CreateMode.EPHEMERAL);
            case "set":
                zk.setData(w[0], w[1].getBytes(), Integer.parseInt(w[2]));
                return "";
            case "delete":
                zk.delete(w[0], Integer.parseInt(w[1]));
                return "";
            case "multi":
                zk.multi(List.of(
                        Op.create(w[0], new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                        Op.setData(w[1], new byte[] {'x'}, Integer.parseInt(w[2]))));
                return "";
            case "get":
                return new String(zk.getData(w[0], false, null));
            case "children":
                return sorted(zk.getChildren(w[0], false));
            case "stat":
                return shown(zk.exists(w[0], false));
            case "auth":
                zk.addAuthInfo(w[0], w[1].getBytes());
                return "";
            case "mine":
                return zk.create(w[0], w[1].getBytes(), ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
            case "flood":
                return flood(w);
            case "watch":
                return watch(w[0], w[1]);
            case "lock":
            case "trylock":
                return lock(w[0], Long.parseLong(w[1]));
            case "held":
                return locks.get(w[0]).isOwner() ? "yes" : "no";
            case "work":
                return work(w[0], locks.get(w[0])::isOwner);
            case "unlock":
                locks.get(w[0]).unlock();
                return "";
            case "close":
                zk.close();
                return "";
            default:
                return More.call(zk, watcher, command, w);
        }
    }

    String create(String[] w, CreateMode mode) throws Exception {
        return zk.create(w[0], w[1].getBytes(), ZooDefs.Ids.OPEN_ACL_UNSAFE, mode);
    }

    String flood(String[] w) throws Exception {
        Flood flood = new Flood(w);
        for (int i = 0; i < flood.count; i++) {
            int index = i;
            zk.setData(w[0], flood.data, -1, (code, p, context, stat) -> flood.ended(index, code), null);
        }
        if (w.length > 3) {
            zk.close();
        }
        return flood.outcomes();
    }

    String watch(String kind, String path) throws Exception {
        switch (kind) {
            case "data": zk.getData(path, watcher, null); break;
            case "children": zk.getChildren(path, watcher); break;
            case "exists": zk.exists(path, watcher); break;
            case "follow": return null;
            case "persistent": zk.addWatch(path, watcher, AddWatchMode.PERSISTENT); break;
            default: zk.addWatch(path, watcher, AddWatchMode.PERSISTENT_RECURSIVE);
        }
        return "";
    }

    // It has no time limit of its own: whoever does not want to wait longer unlocks it.
    String lock(String path, long milliseconds) throws Exception {
        CountDownLatch acquired = new CountDownLatch(1);
        WriteLock lock = new WriteLock(zk, path, ZooDefs.Ids.OPEN_ACL_UNSAFE, new LockListener() {
            public void lockAcquired() {
                acquired.countDown();
            }

            public void lockReleased() {
                state("lockReleased");
            }
        });
        locks.put(path, lock);
        if (lock.lock() || acquired.await(milliseconds, TimeUnit.MILLISECONDS)) {
            return "held";
        }
        lock.unlock();
        return "not held";
    }
}
