package evenkeel;

/** Which program is asked for (tests/compat/languages.py has the whole interface). */
public final class Main {
    public static void main(String[] words) throws Exception {
        Options options = new Options(words);
        switch (options.text("do", "")) {
            case "produce" -> Produce.run(options);
            case "consume" -> Consume.run(options);
            case "group" -> Group.run(options);
            case "times" -> Times.run(options);
            case "admin" -> Administer.run(options);
            case "transact" -> Transact.run(options);
            case "share" -> Share.run(options);
            case "streams" -> Streams.run(options);
            default -> throw new IllegalArgumentException(options.text("do", ""));
        }
        Event.tell("done");
    }
}
