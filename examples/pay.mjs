// Pays through the gateway, once, however often it has to ask. Node 18 or newer, nothing else.
//
//     semel demo
//     node examples/pay.mjs http://127.0.0.1:PORT

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

async function pay(gateway, payment, tries = 5) {
  // One key for one payment: made before the first try, and sent with every one. Keep it with the payment, so
  // that a program that was restarted asks for the same.
  const key = randomUUID();
  for (let attempt = 0; attempt < tries; attempt++) {
    let pause = 0.2 * 2 ** attempt;
    try {
      const answer = await fetch(`${gateway}/payments`, {
        method: "POST",
        headers: { "content-type": "application/json", "idempotency-key": key },
        body: JSON.stringify(payment),
        signal: AbortSignal.timeout(10_000),
      });
      const body = await answer.json();
      if (answer.ok) return { ...body, replayed: answer.headers.get("idempotency-replayed") === "true" };
      // 409 while it is being processed, and 5xx: the same request may be sent again. A key whose outcome is not
      // known needs a person; anything else is wrong with the request.
      const again = [409, 429, 500, 502, 503, 504].includes(answer.status);
      if (!again || body.code === "idempotency_outcome_unknown") {
        return { refused: `${answer.status} ${body.title}; the key is ${key}` };
      }
      pause = Number(answer.headers.get("retry-after") ?? pause) || pause;
    } catch {
      // Whether it arrived is not known, which is what the key is for.
    }
    await sleep(pause * 1000);
  }
  return { refused: `no answer; try again later with the same key: ${key}` };
}

const [gateway] = process.argv.slice(2);
if (!gateway) {
  console.error("usage: pay.mjs URL-OF-THE-GATEWAY");
  process.exit(2);
}
const paid = await pay(gateway.replace(/\/$/, ""), { to: "ann", cents: 1000 });
if (paid.refused) {
  console.error(`refused: ${paid.refused}`);
  process.exit(1);
}
console.log(`receipt ${paid.receipt}${paid.replayed ? ", from the record" : ""}`);
