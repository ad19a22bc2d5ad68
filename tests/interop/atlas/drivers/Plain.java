// ZooKeeper's own Java client, as the ZooKeeper Programmer's Guide uses it, and the WriteLock of
// its recipes. The lines are those of lines.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Version;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

public class Plain {
    static class Session {
        final String name;
        ZooKeeper zk;
        final Map<String, WriteLock> locks = new ConcurrentHashMap<>();

        Session(String name) {
            this.name = name;
        }

        void told(WatchedEvent event) {
            if (event.getType() == Watcher.Event.EventType.None) {
                say("* " + name + " state " + event.getState());
            } else {
                say("* " + name + " event " + event.getType() + " " + event.getPath());
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
                case "flood":
                    return flood(w[0], Integer.parseInt(w[1]), Integer.parseInt(w[2]), w.length > 3);
                case "watch":
                    return watch(w[0], w[1]);
                case "lock":
                case "trylock":
                    return lock(w[0], Long.parseLong(w[1]));
                case "held":
                    return locks.get(w[0]).isOwner() ? "yes" : "no";
                case "work":
                    return work(locks.get(w[0]), w[0]);
                case "unlock":
                    locks.get(w[0]).unlock();
                    return "";
                case "close":
                    zk.close();
                    return "";
                default:
                    return null;
            }
        }

        String create(String[] w, CreateMode mode) throws Exception {
            return zk.create(w[0], w[1].getBytes(), ZooDefs.Ids.OPEN_ACL_UNSAFE, mode);
        }

        String flood(String path, int count, int size, boolean close) throws Exception {
            AtomicReferenceArray<String> ends = new AtomicReferenceArray<>(count);
            byte[] data = "x".repeat(size).getBytes();
            CountDownLatch all = new CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                int index = i;
                zk.setData(path, data, -1, (code, p, context, stat) -> {
                    ends.set(index, code == 0 ? "ok" : KeeperException.Code.get(code).toString());
                    all.countDown();
                }, null);
            }
            if (close) {
                zk.close();
            }
            all.await(20, TimeUnit.SECONDS);
            return outcomes(ends);
        }

        String watch(String kind, String path) throws Exception {
            switch (kind) {
                case "data": zk.getData(path, this::told, null); break;
                case "children": zk.getChildren(path, this::told); break;
                case "follow": return null;
                case "persistent": zk.addWatch(path, this::told, AddWatchMode.PERSISTENT); break;
                default: zk.addWatch(path, this::told, AddWatchMode.PERSISTENT_RECURSIVE);
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
                    say("* " + name + " state lockReleased");
                }
            });
            locks.put(path, lock);
            if (lock.lock() || acquired.await(milliseconds, TimeUnit.MILLISECONDS)) {
                return "held";
            }
            lock.unlock();
            return "not held";
        }

        // Write elsewhere while the lock says that it is held.
        String work(WriteLock lock, String path) throws Exception {
            while (lock.isOwner()) {
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
        say("ready " + Version.getVersion());
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
                    say(words[0] + " error " + error.getClass().getSimpleName());
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }
}
