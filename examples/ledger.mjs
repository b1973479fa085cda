// A service behind the gateway that commits its effect and its outcome together. Node 18 or newer and psql, nothing else.
//
//     psql postgres://app@localhost/app -c 'create table ledger (cents bigint not null)'
//     semel gateway --store postgres://app@localhost/app --migrate --policy transactional --upstream http://127.0.0.1:3000
//     node examples/ledger.mjs 3000 postgres://app@localhost/app

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:http";

// Either both are committed or neither is. `semel.complete` fails if another attempt has the key by now.
const BOOK = `
begin;
insert into ledger (cents) values (:'cents');
select semel.complete(:'realm', :'principal', :'key', :'token', :'fence', 201,
    convert_to(:'reply', 'UTF8'), '[["content-type", "application/json"]]');
commit;
`;

async function book(headers, cents, database) {
  const reply = JSON.stringify({ booked: cents });
  const values = {
    cents,
    reply,
    realm: decodeURIComponent(headers["semel-realm"]),
    principal: decodeURIComponent(headers["semel-principal"]),
    // The key as the record has it; Idempotency-Key may have quotation marks around it.
    key: headers["semel-key"],
    token: headers["semel-token"],
    fence: headers["semel-fence"],
  };
  // A real service has a driver and a pool; psql quotes its variables as a driver does.
  const variables = Object.entries(values).flatMap(([name, value]) => ["-v", `${name}=${value}`]);
  const options = ["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", ...variables, database];
  const psql = spawn("psql", options, { stdio: ["pipe", "ignore", "inherit"] });
  psql.stdin.end(BOOK);
  const [code] = await once(psql, "close");
  return code === 0 ? reply : null;
}

async function answer(request, database) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  let cents;
  try {
    ({ cents } = JSON.parse(Buffer.concat(chunks)));
  } catch {
    // Told below.
  }
  if (!Number.isSafeInteger(cents)) return [400, JSON.stringify({ error: "send an object with a number of cents" })];
  const reply = await book(request.headers, cents, database);
  // Rolled back, or an earlier attempt was faster: the gateway releases the key, or answers from the record.
  return reply === null ? [503, JSON.stringify({ booked: null })] : [201, reply];
}

const [port, database] = process.argv.slice(2);
if (!database) {
  console.error("usage: ledger.mjs PORT URL-OF-THE-DATABASE");
  process.exit(2);
}
const server = createServer(async (request, response) => {
  const [status, reply] = await answer(request, database).catch(() => [503, JSON.stringify({ booked: null })]);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(reply) }).end(reply);
});
server.listen(Number(port), "127.0.0.1", () => console.log(`listening on ${server.address().port}`));
