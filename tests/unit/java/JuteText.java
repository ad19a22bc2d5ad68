// Turns records of ZooKeeper's own Java classes into text and back; see tests/test_java_bytes.py.
//
// Each line of the standard input is a question, each line of the standard output its answer:
//
//     fields             the classes a client may meet, each as NAME:FIELD,FIELD,...
//     read NAME HEX      bytes to a record: its bytes as written again, and its text
//     write TEXT         text to a record: its bytes
//
// An answer that begins with "error" is an exception. The text of a record, in the wire's order:
//
//     CreateRequest={ path="/a" data=#00ff acl=[ e1={ perms=31 id={ scheme="a" id="b" } } ] flags=0 }
//
// Null is "null"; in strings, what is not printable ASCII is \ and u and four hexadecimal digits.
// Reading and writing text are archives like Jute's binary ones, so the classes themselves say
// which fields they have, in which order.

import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Deque;
import java.util.List;
import java.util.StringJoiner;
import java.util.TreeMap;
import java.util.jar.JarFile;
import org.apache.jute.BinaryInputArchive;
import org.apache.jute.BinaryOutputArchive;
import org.apache.jute.Index;
import org.apache.jute.InputArchive;
import org.apache.jute.OutputArchive;
import org.apache.jute.Record;

public class JuteText {
    // The last one is for MultiOperationRecord and MultiResponse.
    private static final String[] PACKAGES = {
        "org.apache.zookeeper.data.", "org.apache.zookeeper.proto.", "org.apache.zookeeper."
    };

    public static void main(String[] arguments) throws IOException {
        BufferedReader questions =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String answer;
            try {
                answer = answer(line);
            } catch (Exception error) {
                answer = "error " + error.toString().replace('\n', ' ');
            }
            System.out.println(answer);
        }
    }

    private static String answer(String line) throws Exception {
        Deque<String> words = new ArrayDeque<>(Arrays.asList(line.split(" ")));
        switch (words.remove()) {
            case "fields":
                return fields();
            case "read":
                Record read = make(words.remove());
                ByteArrayInputStream bytes = new ByteArrayInputStream(bytes(words.remove()));
                read.deserialize(BinaryInputArchive.getArchive(bytes), "");
                if (bytes.available() > 0) {
                    throw new IOException(bytes.available() + " bytes are left");
                }
                return encoded(read) + " " + described(read);
            case "write":
                String name = words.element().replace("={", "");
                Record described = make(name);
                described.deserialize(new TextInput(words), name);
                if (!words.isEmpty()) {
                    throw new IOException("words are left: " + words);
                }
                return encoded(described);
            default:
                throw new IOException("no such question: " + line);
        }
    }

    private static String fields() throws Exception {
        StringJoiner found = new StringJoiner(" ");
        Class<?> any = org.apache.zookeeper.data.Stat.class;
        File jar = new File(any.getProtectionDomain().getCodeSource().getLocation().toURI());
        try (JarFile entries = new JarFile(jar)) {
            for (String entry : (Iterable<String>) entries.stream().map(e -> e.getName())::iterator) {
                if (entry.matches("org/apache/zookeeper/(data|proto)/\\w+\\.class")) {
                    String name = entry.replace(".class", "").replace('/', '.');
                    found.add(fields(Class.forName(name)));
                }
            }
        }
        return found.toString();
    }

    private static String fields(Class<?> kind) {
        StringJoiner names = new StringJoiner(",", kind.getSimpleName() + ":", "");
        for (Field field : kind.getDeclaredFields()) {
            if (!Modifier.isStatic(field.getModifiers())) {
                names.add(field.getName());
            }
        }
        return names.toString();
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

    private static String encoded(Record record) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        record.serialize(BinaryOutputArchive.getArchive(bytes), "");
        return hex(bytes.toByteArray());
    }

    private static String described(Record record) throws IOException {
        TextOutput text = new TextOutput();
        record.serialize(text, record.getClass().getSimpleName());
        return text.words.toString();
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

    private static String unquoted(String quoted) {
        StringBuilder text = new StringBuilder();
        for (int i = 1; i < quoted.length() - 1; i++) {
            if (quoted.charAt(i) == '\\') {
                text.append((char) Integer.parseInt(quoted.substring(i + 2, i + 6), 16));
                i += 5;
            } else {
                text.append(quoted.charAt(i));
            }
        }
        return text.toString();
    }

    private static class TextOutput implements OutputArchive {
        final StringJoiner words = new StringJoiner(" ");

        private void put(String tag, Object value) {
            words.add(tag + "=" + value);
        }

        public void writeBool(boolean value, String tag) {
            put(tag, value);
        }

        public void writeInt(int value, String tag) {
            put(tag, value);
        }

        public void writeLong(long value, String tag) {
            put(tag, value);
        }

        public void writeString(String value, String tag) {
            put(tag, value == null ? "null" : quoted(value));
        }

        public void writeBuffer(byte[] value, String tag) {
            put(tag, value == null ? "null" : hex(value));
        }

        public void writeRecord(Record value, String tag) throws IOException {
            value.serialize(this, tag);
        }

        public void startRecord(Record value, String tag) {
            put(tag, "{");
        }

        public void endRecord(Record value, String tag) {
            words.add("}");
        }

        public void startVector(List<?> value, String tag) {
            put(tag, value == null ? "null" : "[");
        }

        public void endVector(List<?> value, String tag) {
            if (value != null) {
                words.add("]");
            }
        }

        // No record of the two packages has any of these.

        public void writeByte(byte value, String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public void writeFloat(float value, String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public void writeDouble(double value, String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public void startMap(TreeMap<?, ?> value, String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public void endMap(TreeMap<?, ?> value, String tag) {
            throw new UnsupportedOperationException(tag);
        }

        // Newer versions of the interface ask for it.
        public long getDataSize() {
            return 0;
        }
    }

    private static class TextInput implements InputArchive {
        private final Deque<String> words;
        private boolean nullVector;

        TextInput(Deque<String> words) {
            this.words = words;
        }

        private String take(String tag) throws IOException {
            String word = words.remove();
            if (!word.startsWith(tag + "=")) {
                throw new IOException(tag + " is wanted, not " + word);
            }
            String value = word.substring(tag.length() + 1);
            return value.equals("null") ? null : value;
        }

        private void take(String tag, String wanted) throws IOException {
            if (!wanted.equals(take(tag))) {
                throw new IOException(tag + " is not " + wanted);
            }
        }

        private void end(String wanted) throws IOException {
            if (!wanted.equals(words.remove())) {
                throw new IOException(wanted + " is missing");
            }
        }

        public boolean readBool(String tag) throws IOException {
            String value = take(tag);
            if (!List.of("true", "false").contains(value)) {
                throw new IOException(tag + " is no boolean: " + value);
            }
            return value.equals("true");
        }

        public int readInt(String tag) throws IOException {
            return Integer.parseInt(take(tag));
        }

        public long readLong(String tag) throws IOException {
            return Long.parseLong(take(tag));
        }

        public String readString(String tag) throws IOException {
            String value = take(tag);
            return value == null ? null : unquoted(value);
        }

        public byte[] readBuffer(String tag) throws IOException {
            String value = take(tag);
            return value == null ? null : bytes(value);
        }

        public void readRecord(Record value, String tag) throws IOException {
            value.deserialize(this, tag);
        }

        public void startRecord(String tag) throws IOException {
            take(tag, "{");
        }

        public void endRecord(String tag) throws IOException {
            end("}");
        }

        public Index startVector(String tag) throws IOException {
            if (words.element().equals(tag + "=null")) {
                words.remove();
                nullVector = true;
                return null;
            }
            take(tag, "[");
            return new Index() {
                public boolean done() {
                    return words.element().equals("]");
                }

                public void incr() {}
            };
        }

        public void endVector(String tag) throws IOException {
            if (!nullVector) {
                end("]");
            }
            nullVector = false;
        }

        // As above.

        public byte readByte(String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public float readFloat(String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public double readDouble(String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public Index startMap(String tag) {
            throw new UnsupportedOperationException(tag);
        }

        public void endMap(String tag) {
            throw new UnsupportedOperationException(tag);
        }
    }
}
