// An authorization server for tests: it consents at once, and mints any token by POST /mint.
import { createHash, createHmac, generateKeyPairSync, randomBytes, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createSecureServer } from "node:https";

const ALGORITHMS = {
  ES256: { make: ["ec", { namedCurve: "P-256" }], hash: "sha256", options: { dsaEncoding: "ieee-p1363" } },
  ES384: { make: ["ec", { namedCurve: "P-384" }], hash: "sha384", options: { dsaEncoding: "ieee-p1363" } },
  RS256: { make: ["rsa", { modulusLength: 2048 }], hash: "sha256", options: {} },
  PS256: { make: ["rsa", { modulusLength: 2048 }], hash: "sha256", options: { padding: 6, saltLength: 32 } },
  EdDSA: { make: ["ed25519", {}], hash: null, options: {} },
};

const base64 = (value) => Buffer.from(value).toString("base64url");
const keys = new Map();
let isDown = false;
let reads = 0;
let current = "ES256";

function addKey(id, algorithm, published = true) {
  const [kind, parameters] = ALGORITHMS[algorithm].make;
  const { publicKey, privateKey } = generateKeyPairSync(kind, parameters);
  const jwk = { ...publicKey.export({ format: "jwk" }), kid: id, alg: algorithm, use: "sig" };
  keys.set(id, { algorithm, privateKey, publicKey, jwk, published });
}
for (const algorithm of Object.keys(ALGORITHMS)) addKey(algorithm, algorithm);
addKey("stranger", "ES256", false);

function mint({ key = current, header = {}, claims = {}, drop = [], signature } = {}) {
  const now = Math.floor(Date.now() / 1000);
  const { algorithm, privateKey, publicKey } = keys.get(key);
  const whole = { iss: issuer, sub: "ann", aud: issuer, exp: now + 300, iat: now, jti: randomBytes(8).toString("hex"), client_id: "tests", ...claims };
  for (const name of drop) delete whole[name];
  const head = { alg: algorithm, typ: "at+jwt", kid: key, ...header };
  for (const name of drop) delete head[name];
  const text = `${base64(JSON.stringify(head))}.${base64(JSON.stringify(whole))}`;
  if (signature === "none") return `${text}.`;
  if (signature === "hmac") {
    const secret = publicKey.export({ format: "pem", type: "spki" });
    return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
  }
  const { hash, options } = ALGORITHMS[algorithm];
  const signed = sign(hash, Buffer.from(text), { key: privateKey, ...options });
  if (signature === "broken") signed[0] ^= 1;
  return `${text}.${base64(signed)}`;
}

const codes = new Map();
const read = async (request) => {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts).toString();
};

async function token(request) {
  const form = new URLSearchParams(await read(request));
  const granted = codes.get(form.get("code")) ?? codes.get(form.get("refresh_token"));
  if (!granted) return [400, { error: "invalid_grant" }];
  if (form.get("grant_type") === "authorization_code") {
    const made = createHash("sha256").update(form.get("code_verifier") ?? "").digest("base64url");
    const isSame = made === granted.challenge && form.get("redirect_uri") === granted.back;
    if (!isSame) return [400, { error: "invalid_grant" }];
    codes.delete(form.get("code"));
  }
  const audience = form.get("resource") ?? granted.resource ?? issuer;
  const scope = form.get("scope") ?? granted.scope ?? "";
  const refresh = randomBytes(16).toString("hex");
  codes.set(refresh, granted);
  const access = mint({ claims: { aud: audience, scope } });
  return [200, { access_token: access, token_type: "Bearer", expires_in: 300, scope, refresh_token: refresh }];
}

const handle = async (request, response) => {
  const url = new URL(request.url, issuer);
  const answer = (status, body, headers = {}) => {
    response.writeHead(status, { "content-type": "application/json", "cache-control": "no-store", ...headers });
    response.end(JSON.stringify(body));
  };
  if (url.pathname.startsWith("/.well-known/")) {
    if (isDown) return answer(503, {});
    return answer(200, {
      issuer,
      authorization_endpoint: `${issuer}/authorize`,
      token_endpoint: `${issuer}/token`,
      registration_endpoint: `${issuer}/register`,
      jwks_uri: `${issuer}/keys`,
      response_types_supported: ["code"],
      grant_types_supported: ["authorization_code", "refresh_token"],
      token_endpoint_auth_methods_supported: ["none"],
      code_challenge_methods_supported: ["S256"],
      authorization_response_iss_parameter_supported: true,
    });
  }
  switch (url.pathname) {
    case "/keys":
      reads += 1;
      if (isDown) return answer(503, {});
      return answer(200, { keys: [...keys.values()].filter((key) => key.published).map((key) => key.jwk) });
    case "/mint":
      return answer(200, { token: mint(JSON.parse((await read(request)) || "{}")) });
    case "/change": {
      const { add, remove, down } = JSON.parse(await read(request));
      if (add) addKey(add, "ES256");
      if (remove) keys.get(remove).published = false;
      if (down !== undefined) isDown = down;
      return answer(200, { reads });
    }
    case "/register": {
      const client = JSON.parse(await read(request));
      return answer(201, { ...client, client_id: randomBytes(8).toString("hex"), token_endpoint_auth_method: "none" });
    }
    case "/authorize": {
      const asked = url.searchParams;
      if (asked.get("code_challenge_method") !== "S256") return answer(400, { error: "invalid_request" });
      const code = randomBytes(16).toString("hex");
      codes.set(code, { challenge: asked.get("code_challenge"), scope: asked.get("scope"), resource: asked.get("resource"), back: asked.get("redirect_uri") });
      const back = new URL(asked.get("redirect_uri"));
      back.searchParams.set("code", code);
      back.searchParams.set("iss", issuer);
      if (asked.get("state")) back.searchParams.set("state", asked.get("state"));
      return answer(302, {}, { location: back.href });
    }
    case "/token":
      return answer(...(await token(request)));
    default:
      return answer(404, {});
  }
};

// With a directory it is at a TLS port, and takes orders at a plain one beside it.
let issuer;
const [directory] = process.argv.slice(2);
const plain = createServer(handle);
plain.listen(0, "127.0.0.1", () => {
  const orders = `http://127.0.0.1:${plain.address().port}`;
  issuer = orders;
  if (directory === undefined) return console.log(issuer);
  const [cert, key] = ["cert.pem", "key.pem"].map((name) => readFileSync(`${directory}/${name}`));
  const secure = createSecureServer({ cert, key }, handle);
  secure.listen(0, "127.0.0.1", () => {
    issuer = `https://localhost:${secure.address().port}`;
    console.log(`${issuer} ${orders}`);
  });
});
