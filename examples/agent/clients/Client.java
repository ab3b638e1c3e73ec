// Acts until the deadline of the last answer, and not as long as a flag is true. URL of the agent: the first argument.
import java.net.URI;
import java.net.http.*;
import java.time.Duration;
import java.util.regex.*;

class Client {
    static final long MARGIN = 200; // milliseconds: the longest piece of work; less than --stop-grace
    static final HttpClient AGENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    static long token, until = Long.MIN_VALUE; // a deadline, in the milliseconds of now()

    // A clock that stops while the machine sleeps: not for a laptop or a suspended virtual machine.
    static long now() { return System.nanoTime() / 1_000_000; }

    static String field(String json, String name) { // or a JSON library
        Matcher matcher = Pattern.compile("\"" + name + "\":\\s*\"?(\\w+)").matcher(json);
        return matcher.find() ? matcher.group(1) : "";
    }

    static void ask(String url) throws Exception {
        long sent = now(); // the app may act for a time that counts from before the request
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/v1/lock")).timeout(Duration.ofSeconds(1)).build();
        String lock = AGENT.send(request, HttpResponse.BodyHandlers.ofString()).body();
        boolean active = field(lock, "role").equals("Active");
        token = active ? Long.parseLong(field(lock, "token")) : 0;
        until = active ? sent + Long.parseLong(field(lock, "validForMilliseconds")) : Long.MIN_VALUE;
    }

    public static void main(String[] arguments) throws Exception {
        for (;; Thread.sleep(50)) {
            try { ask(arguments[0]); } catch (java.io.IOException e) { /* a silent agent changes no deadline */ }
            if (now() + MARGIN < until) System.out.println("act " + token); // pass the token to each resource
        }
    }
}
