// What the drivers in Java share; the lines are those of lines.py.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReferenceArray;
import java.util.function.BooleanSupplier;
import java.util.function.Function;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.data.Stat;

/** One client. */
abstract class Lines {
    final String name;

    Lines(String name) {
        this.name = name;
    }

    /** What a command returns; null if the library has no such thing. */
    abstract String call(String command, String[] words) throws Exception;

    void state(Object state) {
        say("* " + name + " state " + state);
    }

    void event(WatchedEvent event) {
        if (event.getType() != Watcher.Event.EventType.None) {
            say("* " + name + " event " + event.getType() + " " + event.getPath());
        }
    }

    /** Write elsewhere while the lock says that it is held. */
    String work(String path, BooleanSupplier held) throws InterruptedException {
        while (held.getAsBoolean()) {
            say("* " + name + " event wrote " + path);
            Thread.sleep(10);
        }
        return "";
    }

    static synchronized void say(String line) {
        System.out.println(line.replace('\n', ' '));
        System.out.flush();
    }

    static String sorted(List<String> names) {
        List<String> copy = new ArrayList<>(names);
        Collections.sort(copy);
        return String.join(",", copy);
    }

    static String shown(Stat s) {
        return s == null ? "none" : s.getVersion() + " " + s.getCversion() + " " + s.getAversion() + ", "
                + s.getDataLength() + " bytes, " + s.getNumChildren() + " children"
                + (s.getEphemeralOwner() != 0 ? ", owned" : "");
    }

    /** The ends of many calls, in the order of the calls. */
    static class Flood {
        final int count;
        final byte[] data;
        private final AtomicReferenceArray<String> ends;
        private final CountDownLatch all;

        Flood(String[] words) {
            count = Integer.parseInt(words[1]);
            data = "x".repeat(Integer.parseInt(words[2])).getBytes();
            ends = new AtomicReferenceArray<>(count);
            all = new CountDownLatch(count);
        }

        void ended(int index, int code) {
            ends.set(index, code == 0 ? "ok" : KeeperException.Code.get(code).toString());
            all.countDown();
        }

        private String end(int index) {
            return ends.get(index) == null ? "no answer" : ends.get(index);
        }

        /** How many in a row have the same end. */
        String outcomes() throws InterruptedException {
            all.await(20, TimeUnit.SECONDS);
            StringBuilder text = new StringBuilder();
            for (int i = 0, next; i < count; i = next) {
                for (next = i; next < count && end(next).equals(end(i)); ) {
                    next++;
                }
                text.append(i > 0 ? ", " : "").append(next - i).append("*").append(end(i));
            }
            return text.toString();
        }
    }

    static void serve(Function<String, Lines> make, String version) throws Exception {
        Map<String, Lines> sessions = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newCachedThreadPool();
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in));
        say("ready " + version);
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] words = line.split(" ");
            if (words[2].equals("exit")) {
                System.exit(0);
            }
            Lines session = sessions.computeIfAbsent(words[1], make);
            pool.submit(() -> {
                try {
                    String result = session.call(words[2], Arrays.copyOfRange(words, 3, words.length));
                    say(words[0] + (result == null ? " lacks" : " ok " + result));
                } catch (Throwable error) {
                    Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                    say(words[0] + " error " + cause.getClass().getSimpleName());
                }
            });
        }
        Runtime.getRuntime().halt(0);
    }
}
