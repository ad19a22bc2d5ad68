// Curator's InterProcessMutex, for benchmarks/contenders.py: one job for each line of input.
//
// Arguments: HOSTS. A line is JOB PATH COUNT, with a JOB of "free", "pair" or "queue". The answer is
// "set" when all is prepared; then an empty line starts the clock, and the answer is nanoseconds.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class CuratorLocks {
    private static final int CLIENTS = 10;
    private static final int SESSION_MILLISECONDS = 1_800_000;

    public static void main(String[] words) throws Exception {
        List<CuratorFramework> clients = new ArrayList<>();
        for (int number = 0; number < CLIENTS; number++) {
            CuratorFramework client = CuratorFrameworkFactory.newClient(
                    words[0], SESSION_MILLISECONDS, 30_000, new RetryOneTime(100));
            client.start();
            client.blockUntilConnected();
            clients.add(client);
        }
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("here");
        for (String line; (line = input.readLine()) != null; ) {
            String[] job = line.split(" ");
            int count = Integer.parseInt(job[2]);
            int contenders = job[0].equals("queue") ? count : job[0].equals("pair") ? 2 : 1;
            int times = count / contenders;
            List<Thread> threads = new ArrayList<>();
            for (int number = 0; number < contenders; number++) {
                InterProcessMutex mutex =
                        new InterProcessMutex(clients.get(number % CLIENTS), job[1]);
                threads.add(new Thread(null, () -> cycles(mutex, times), "contender", 1 << 18));
            }
            InterProcessMutex gate = new InterProcessMutex(clients.get(0), job[1]);
            if (job[0].equals("queue")) {
                gate.acquire();
                threads.forEach(Thread::start);
                while (clients.get(0).getChildren().forPath(job[1]).size() <= count) {
                    Thread.sleep(10);
                }
            }
            System.out.println("set");
            input.readLine();
            long started = System.nanoTime();
            if (job[0].equals("queue")) {
                gate.release();
            } else {
                threads.forEach(Thread::start);
            }
            for (Thread thread : threads) {
                thread.join();
            }
            System.out.println(System.nanoTime() - started);
        }
        System.exit(0);
    }

    private static void cycles(InterProcessMutex mutex, int times) {
        try {
            for (int time = 0; time < times; time++) {
                mutex.acquire();
                mutex.release();
            }
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1);
        }
    }
}
