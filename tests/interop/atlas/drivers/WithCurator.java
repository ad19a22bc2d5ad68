// Apache Curator, as its pages Getting Started, Error Handling and Shared Reentrant Lock use it.
// The lines are those of lines.py.

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.cache.CuratorCache;
import org.apache.curator.framework.recipes.cache.CuratorCacheListener;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;

public class WithCurator extends Lines {
    private CuratorFramework client;
    private final Map<String, InterProcessMutex> locks = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> holders = new ConcurrentHashMap<>(); // a lock is a thread's

    private WithCurator(String name) {
        super(name);
    }

    public static void main(String[] arguments) throws Exception {
        serve(WithCurator::new, "");
    }

    String call(String command, String[] w) throws Exception {
        switch (command) {
            case "connect":
                int timeout = Integer.parseInt(w[1]);
                client = CuratorFrameworkFactory.newClient(
                        w[0], timeout, timeout, new ExponentialBackoffRetry(1000, 3));
                client.getConnectionStateListenable().addListener(
                        (c, state) -> state(state));
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
            case "children":
                return sorted(client.getChildren().forPath(w[0]));
            case "stat":
                return shown(client.checkExists().forPath(w[0]));
            case "auth":
                client.getZookeeperClient().getZooKeeper().addAuthInfo(w[0], w[1].getBytes());
                return "";
            case "mine":
                return client.create().withACL(ZooDefs.Ids.CREATOR_ALL_ACL).forPath(w[0], w[1].getBytes());
            case "flood":
                return flood(w);
            case "watch":
                return watch(w[0], w[1]);
            case "lock":
            case "trylock":
                return lock(w[0], Long.parseLong(w[1]));
            case "held":
                return locks.get(w[0]).isAcquiredInThisProcess() ? "yes" : "no";
            case "work":
                return work(w[0], locks.get(w[0])::isAcquiredInThisProcess);
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

    String flood(String[] w) throws Exception {
        Flood flood = new Flood(w);
        for (int i = 0; i < flood.count; i++) {
            int index = i;
            client.setData().inBackground((c, event) -> flood.ended(index, event.getResultCode()))
                    .forPath(w[0], flood.data);
        }
        if (w.length > 3) {
            client.close();
        }
        return flood.outcomes();
    }

    String watch(String kind, String path) throws Exception {
        Watcher watcher = this::event;
        switch (kind) {
            case "data": client.getData().usingWatcher(watcher).forPath(path); break;
            case "exists": client.checkExists().usingWatcher(watcher).forPath(path); break;
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
}
