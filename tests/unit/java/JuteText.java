// Reads records with ZooKeeper's own Java classes; see tests/unit/test_java_bytes.py.
//
// Each line of the standard input is a question, each line of the standard output its answer:
//
//     fields             the classes a client may meet, each as NAME:FIELD,FIELD,...
//     read NAME HEX      bytes to a record: its bytes as written again, and its text
//
// An answer that begins with "error" is an exception. The text of a record, in the wire's order:
//
//     CreateRequest={ path="/a" data=#00ff acl=[ e1={ perms=31 id={ scheme="a" id="b" } } ] flags=0 }
//
// Null is "null"; in strings, what is not printable ASCII is \ and u and four hexadecimal digits.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.StringJoiner;
import java.util.jar.JarFile;
import org.apache.jute.BinaryInputArchive;
import org.apache.jute.BinaryOutputArchive;
import org.apache.jute.Record;

public class JuteText {
    private static final String[] PACKAGES = {
        "org.apache.zookeeper.data.", "org.apache.zookeeper.proto."
    };

    public static void main(String[] arguments) throws IOException {
        BufferedReader questions =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String answer;
            try {
                String[] words = line.split(" ");
                answer = words.length == 1 ? fields() : read(words[1], bytes(words[2]));
            } catch (Exception error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private static String read(String name, byte[] data) throws Exception {
        Record record = make(name);
        ByteArrayInputStream bytes = new ByteArrayInputStream(data);
        record.deserialize(BinaryInputArchive.getArchive(bytes), "");
        if (bytes.available() > 0) {
            throw new IOException(bytes.available() + " bytes are left");
        }
        ByteArrayOutputStream again = new ByteArrayOutputStream();
        record.serialize(BinaryOutputArchive.getArchive(again), "");
        return hex(again.toByteArray()) + " " + described(name, record);
    }

    private static Record make(String name) throws ReflectiveOperationException {
        for (String group : PACKAGES) {
            try {
                return (Record) Class.forName(group + name).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException error) {
                continue;
            }
        }
        throw new ClassNotFoundException(name);
    }

    private static String fields() throws Exception {
        StringJoiner found = new StringJoiner(" ");
        Class<?> any = org.apache.zookeeper.data.Stat.class;
        File jar = new File(any.getProtectionDomain().getCodeSource().getLocation().toURI());
        try (JarFile entries = new JarFile(jar)) {
            for (String entry : (Iterable<String>) entries.stream().map(e -> e.getName())::iterator) {
                if (entry.matches("org/apache/zookeeper/(data|proto)/\\w+\\.class")) {
                    Class<?> kind = Class.forName(entry.replace(".class", "").replace('/', '.'));
                    StringJoiner names = new StringJoiner(",", kind.getSimpleName() + ":", "");
                    for (Field field : fields(kind)) {
                        names.add(field.getName());
                    }
                    found.add(names.toString());
                }
            }
        }
        return found.toString();
    }

    private static List<Field> fields(Class<?> kind) {
        List<Field> found = new ArrayList<>();
        for (Field field : kind.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                field.setAccessible(true);
                found.add(field);
            }
        }
        return found;
    }

    private static String described(String tag, Object value) throws IllegalAccessException {
        StringJoiner words = new StringJoiner(" ");
        if (value instanceof Record) {
            words.add(tag + "={");
            for (Field field : fields(value.getClass())) {
                words.add(described(field.getName(), field.get(value)));
            }
            return words.add("}").toString();
        }
        if (value instanceof List) {
            words.add(tag + "=[");
            for (Object one : (List<?>) value) {
                words.add(described("e1", one));
            }
            return words.add("]").toString();
        }
        String shown = String.valueOf(value);
        if (value instanceof String) {
            shown = quoted(shown);
        } else if (value instanceof byte[]) {
            shown = hex((byte[]) value);
        }
        return tag + "=" + shown;
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder("#");
        for (byte one : bytes) {
            text.append(String.format("%02x", one));
        }
        return text.toString();
    }

    private static byte[] bytes(String hex) {
        byte[] bytes = new byte[hex.length() / 2];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) Integer.parseInt(hex.substring(2 * i + 1, 2 * i + 3), 16);
        }
        return bytes;
    }

    private static String quoted(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char one : text.toCharArray()) {
            boolean plain = one > ' ' && one < 127 && one != '\\';
            quoted.append(plain ? String.valueOf(one) : String.format("\\u%04x", (int) one));
        }
        return quoted.append('"').toString();
    }
}
