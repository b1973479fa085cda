// Pays through the gateway, once, however often it has to ask. Java 17 or newer, nothing else.
//
//     semel demo
//     java examples/Pay.java http://127.0.0.1:PORT

import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Set;
import java.util.UUID;

public class Pay {
    private static final Set<Integer> AGAIN = Set.of(409, 429, 500, 502, 503, 504);

    public static void main(String[] args) throws InterruptedException {
        if (args.length != 1) {
            System.err.println("usage: Pay.java URL-OF-THE-GATEWAY");
            System.exit(2);
        }
        // One key for one payment: made before the first try, and sent with every one. Keep it with the payment, so that a
        // program that was restarted asks for the same.
        String key = UUID.randomUUID().toString();
        HttpResponse<String> paid = pay(args[0].replaceAll("/$", ""), key, "{\"to\":\"ann\",\"cents\":1000}", 5);
        if (paid == null || paid.statusCode() >= 300) {
            System.err.println("refused: " + (paid == null ? "no answer; try again later" : paid.body()) + "; the key is " + key);
            System.exit(1);
        }
        boolean replayed = paid.headers().firstValue("idempotency-replayed").isPresent();
        System.out.println(paid.body() + (replayed ? ", from the record" : ""));
    }

    static HttpResponse<String> pay(String gateway, String key, String payment, int tries) throws InterruptedException {
        HttpRequest request = HttpRequest.newBuilder(URI.create(gateway + "/payments"))
                .header("Content-Type", "application/json")
                .header("Idempotency-Key", key)
                .timeout(Duration.ofSeconds(10))
                .POST(HttpRequest.BodyPublishers.ofString(payment))
                .build();
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        for (int attempt = 0; attempt < tries; attempt++) {
            double pause = 0.2 * Math.pow(2, attempt);
            try {
                HttpResponse<String> answer = client.send(request, HttpResponse.BodyHandlers.ofString());
                // 409 while it is being processed, and 5xx: the same request may be sent again. A key whose outcome is
                // not known needs a person; anything else is wrong with the request.
                boolean again = AGAIN.contains(answer.statusCode());
                if (!again || answer.body().contains("idempotency_outcome_unknown")) {
                    return answer;
                }
                pause = answer.headers().firstValue("retry-after").filter(after -> after.matches("[0-9]+"))
                        .map(Double::parseDouble).orElse(pause);
            } catch (IOException lost) {
                // Whether it arrived is not known, which is what the key is for.
            }
            Thread.sleep((long) (pause * 1000));
        }
        return null;
    }
}
