//! Callers with a token that the gateway verifies.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

use crate::process::{BOUND, Gateway, Setup, until};
use crate::upstream::{Upstream, answer};
use crate::wire::Reply;

const ISSUER: &str = "https://issuer.example";
const AUDIENCE: &str = "shop";

fn encoded(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An issuer of tokens, with a key of each kind.
struct Issuer {
    rsa: RsaKeyPair,
    ec: EcdsaKeyPair,
    ed: Ed25519KeyPair,
    random: SystemRandom,
}

impl Issuer {
    fn new() -> Self {
        let random = SystemRandom::new();
        // The key is stored, because making one takes long.
        let pem = include_bytes!("keys/rsa.pem");
        let rsa = PrivateKeyDer::from_pem_slice(pem).expect("a key");
        let ec = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).expect("a key");
        let ed = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
        Self {
            rsa: RsaKeyPair::from_pkcs8(rsa.secret_der()).expect("a key"),
            ec: EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, ec.as_ref(), &random)
                .expect("a key"),
            ed: Ed25519KeyPair::from_pkcs8(ed.as_ref()).expect("a key"),
            random,
        }
    }

    fn modulus(&self) -> Vec<u8> {
        ring::signature::RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public()).n
    }

    /// Its key for EdDSA alone, under this name.
    fn only_key(&self, kid: &str) -> Value {
        json!({ "keys": [{ "kty": "OKP", "kid": kid, "crv": "Ed25519", "x": encoded(self.ed.public_key()) }] })
    }

    /// A valid token of this caller, signed with the key of this name.
    fn by(&self, kid: &str, caller: &str) -> String {
        self.token(&json!({ "alg": "EdDSA", "kid": kid }), &claims(caller))
    }

    /// Its public keys.
    fn keys(&self) -> Value {
        let components = ring::signature::RsaPublicKeyComponents::<Vec<u8>>::from(self.rsa.public());
        let point = self.ec.public_key().as_ref();
        json!({ "keys": [
            { "kty": "RSA", "kid": "rsa", "use": "sig", "n": encoded(&components.n), "e": encoded(&components.e) },
            { "kty": "EC", "kid": "ec", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..]) },
            { "kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": encoded(self.ed.public_key()) },
        ]})
    }

    fn token(&self, head: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", encoded(head.to_string()), encoded(claims.to_string()));
        let message = signed.as_bytes();
        let signature = match head["alg"].as_str().unwrap() {
            "RS256" => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &self.random, message, &mut signature).expect("a signature");
                signature
            }
            "ES256" => self.ec.sign(&self.random, message).expect("a signature").as_ref().to_vec(),
            "EdDSA" => self.ed.sign(message).as_ref().to_vec(),
            "HS256" => {
                // The public key is used as if it were a secret.
                let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &self.modulus());
                ring::hmac::sign(&key, message).as_ref().to_vec()
            }
            _ => Vec::new(),
        };
        format!("{signed}.{}", encoded(signature))
    }

    /// A valid token of this caller.
    fn of(&self, caller: &str) -> String {
        self.token(&json!({ "alg": "EdDSA", "kid": "ed" }), &claims(caller))
    }
}

fn now() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

fn claims(caller: &str) -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": caller, "iat": now(), "exp": now() + 600 })
}

fn but(name: &str, value: Value) -> Value {
    let mut claims = claims("ann");
    claims[name] = value;
    claims
}

fn setup(upstream: &Upstream, jwks: &str) -> Setup {
    let setup = Setup::before(upstream.address).without("--anonymous").with("--scope", "jwt");
    setup.with("--jwks", jwks).with("--issuer", ISSUER).with("--audience", AUDIENCE)
}

/// A gateway that has the issuer's keys in a file.
async fn gateway(upstream: &Upstream, issuer: &Issuer) -> Gateway {
    let setup = setup(upstream, "keys.json");
    setup.write("keys.json", &issuer.keys().to_string());
    setup.start().await
}

async fn pay(gateway: &Gateway, key: &str, token: &str) -> Reply {
    let fields = format!("Idempotency-Key: {key}\r\nAuthorization: Bearer {token}\r\n");
    gateway.ask("POST /charges", &fields, "{}").await
}

#[tokio::test]
async fn a_refreshed_token_is_the_same_caller_whatever_key_signs_it() {
    let (issuer, upstream) = (Issuer::new(), Upstream::counting().await);
    let gateway = gateway(&upstream, &issuer).await;
    let mut replayed = false;
    for (algorithm, kid) in [("RS256", "rsa"), ("ES256", "ec"), ("EdDSA", "ed")] {
        for head in [json!({ "alg": algorithm, "kid": kid }), json!({ "alg": algorithm })] {
            let mut claims = claims("ann");
            claims["jti"] = json!(head.to_string());
            let reply = pay(&gateway, "k", &issuer.token(&head, &claims)).await;
            assert_eq!(reply.told(), (200, "run 1".to_owned(), replayed), "{head}");
            replayed = true;
        }
    }
    assert_eq!(pay(&gateway, "k", &issuer.of("bob")).await.told(), (200, "run 2".to_owned(), false));
    let principal = upstream.seen()[0].header("semel-principal").map(str::to_owned);
    assert_eq!(principal.as_deref(), Some("https://issuer.example sub ann"));
    let long = pay(&gateway, "k", &issuer.of(&"x".repeat(300))).await;
    assert_eq!(long.told(), (200, "run 3".to_owned(), false));
}

#[tokio::test]
async fn a_token_that_does_not_hold_is_refused_and_nothing_is_claimed() {
    let (issuer, upstream) = (Issuer::new(), Upstream::counting().await);
    let gateway = gateway(&upstream, &issuer).await;
    let ed = json!({ "alg": "EdDSA", "kid": "ed" });
    let good = issuer.of("ann");
    let (signed, _) = good.rsplit_once('.').unwrap();
    let (other, head) = (Issuer::new(), json!({ "alg": "ES256", "kid": "ec" }));
    let none = json!({ "alg": "none" });
    let tokens = [
        ("another audience", issuer.token(&ed, &but("aud", json!("bank")))),
        ("no audience", issuer.token(&ed, &but("aud", json!([])))),
        ("another issuer", issuer.token(&ed, &but("iss", json!("https://evil.example")))),
        ("two issuers", issuer.token(&ed, &but("iss", json!([ISSUER, "https://evil.example"])))),
        ("expired", issuer.token(&ed, &but("exp", json!(now() - 60)))),
        ("without an end", issuer.token(&ed, &but("exp", Value::Null))),
        ("not valid yet", issuer.token(&ed, &but("nbf", json!(now() + 600)))),
        ("without a caller", issuer.token(&ed, &but("sub", Value::Null))),
        ("an empty caller", issuer.token(&ed, &but("sub", json!("")))),
        ("a caller that is a number", issuer.token(&ed, &but("sub", json!(7)))),
        ("without a signature", format!("{signed}.")),
        ("alg none", issuer.token(&none, &claims("ann"))),
        ("alg None", issuer.token(&json!({ "alg": "None", "kid": "ed" }), &claims("ann"))),
        ("HS256 by the public key", issuer.token(&json!({ "alg": "HS256", "kid": "rsa" }), &claims("ann"))),
        (
            "the algorithm of another key",
            issuer.token(&json!({ "alg": "RS256", "kid": "ed" }), &claims("ann")),
        ),
        ("signed by another", other.token(&head, &claims("ann"))),
        ("an unknown key", issuer.token(&json!({ "alg": "EdDSA", "kid": "new" }), &claims("ann"))),
        (
            "unknown extensions",
            issuer.token(&json!({ "alg": "EdDSA", "kid": "ed", "crit": ["b64"] }), &claims("ann")),
        ),
        ("no token", "a.b.c".to_owned()),
        ("too long", "a".repeat(20_000)),
    ];
    for (what, token) in tokens {
        let reply = pay(&gateway, "k", &token).await;
        reply.problem(401, "token_invalid");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer error=\"invalid_token\""), "{what}");
    }
    for fields in ["", "Authorization: Basic YTpi\r\n", "Authorization: Bearer\r\n"] {
        let reply = gateway.ask("POST /charges", &format!("Idempotency-Key: k\r\n{fields}"), "{}").await;
        reply.problem(401, "token_missing");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    assert_eq!(upstream.count(), 0);
    // Nothing was claimed: the first valid token runs.
    assert_eq!(pay(&gateway, "k", &good).await.told(), (200, "run 1".to_owned(), false));
    // Requests without a key are left to the service.
    assert_eq!(gateway.ask("POST /charges", "", "{}").await.status, 200);
    assert!(!gateway.log().contains(&good));
}

/// A server of keys, which counts its requests.
async fn server(keys: Value) -> (Upstream, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let upstream = Upstream::start(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        let keys = keys.to_string();
        async move { answer("200 OK", "Content-Type: application/json\r\n", keys) }
    });
    (upstream.await, asked)
}

#[tokio::test]
async fn a_flood_of_unknown_keys_does_not_reach_the_issuer() {
    let (issuer, upstream) = (Issuer::new(), Upstream::counting().await);
    let (keys, asked) = server(issuer.keys()).await;
    let gateway = setup(&upstream, &format!("http://{}/keys", keys.address)).start().await;
    let began = std::time::Instant::now();
    assert_eq!(pay(&gateway, "k", &issuer.of("ann")).await.status, 200);
    for number in 0..50 {
        let head = json!({ "alg": "EdDSA", "kid": format!("unknown-{number}") });
        pay(&gateway, "k", &issuer.token(&head, &claims("ann"))).await.problem(401, "token_invalid");
    }
    // The keys are read once at the start, and once in each ten seconds that this took.
    let allowed = 2 + began.elapsed().as_secs() as usize / 10;
    assert!(asked.load(Ordering::Relaxed) <= allowed, "asked {} times", asked.load(Ordering::Relaxed));
    assert_eq!(pay(&gateway, "k", &issuer.of("ann")).await.told(), (200, "run 1".to_owned(), true));
}

/// Asks until the answer has this status, as the gateway asks the issuer at most once in 10 s.
async fn pay_until(gateway: &Gateway, token: &str, status: u16) -> Reply {
    let began = Instant::now();
    loop {
        let reply = pay(gateway, "k", token).await;
        if reply.status == status {
            return reply;
        }
        assert!(began.elapsed() < BOUND, "{} {}", reply.status, reply.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// An issuer replaces its key, is down for a while, and replaces it again.
#[tokio::test]
async fn keys_of_an_issuer_are_replaced_withdrawn_and_missed() {
    let (first, second, third) = (Issuer::new(), Issuer::new(), Issuer::new());
    let upstream = Upstream::counting().await;
    let published = Arc::new(Mutex::new(("200 OK", first.only_key("1").to_string())));
    let asked = Arc::new(AtomicUsize::new(0));
    let server = Upstream::start({
        let (published, asked) = (Arc::clone(&published), Arc::clone(&asked));
        move |_| {
            asked.fetch_add(1, Ordering::Relaxed);
            let (status, keys) = published.lock().unwrap().clone();
            async move { answer(status, "", keys) }
        }
    });
    let server = server.await;
    let publish = |status, keys: &Value| *published.lock().unwrap() = (status, keys.to_string());
    let began = Instant::now();
    let gateway = setup(&upstream, &format!("http://{}/keys", server.address)).start().await;
    assert_eq!(pay(&gateway, "k", &first.by("1", "ann")).await.told(), (200, "run 1".to_owned(), false));

    // A new key is found by the tokens that name it; the same caller gets its answer again.
    publish("200 OK", &second.only_key("2"));
    let replaced = pay_until(&gateway, &second.by("2", "ann"), 200).await;
    assert_eq!(replaced.told(), (200, "run 1".to_owned(), true));
    // The old key was withdrawn, and its name does not make the new one fit.
    pay(&gateway, "k", &first.by("1", "ann")).await.problem(401, "token_invalid");
    pay(&gateway, "k", &first.by("2", "ann")).await.problem(401, "token_invalid");

    // While the issuer is down, known keys are used, and unknown ones may be new.
    publish("500 Oops", &json!({}));
    pay_until(&gateway, &third.by("3", "ann"), 503).await.problem(503, "token_keys_unavailable");
    assert_eq!(pay(&gateway, "k", &second.by("2", "ann")).await.status, 200);
    publish("200 OK", &third.only_key("3"));
    assert_eq!(pay_until(&gateway, &third.by("3", "ann"), 200).await.told(), (200, "run 1".to_owned(), true));
    pay(&gateway, "k", &second.by("2", "ann")).await.problem(401, "token_invalid");

    let allowed = 2 + began.elapsed().as_secs() as usize / 10;
    let asked = asked.load(Ordering::Relaxed);
    assert!((4..=allowed).contains(&asked), "asked {asked} times, and {allowed} are allowed");
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn keys_that_cannot_be_had_are_an_outage_and_not_a_bad_token() {
    let (issuer, upstream) = (Issuer::new(), Upstream::counting().await);
    for answered in ["{}".to_owned(), format!("{{\"keys\":[{}]}}", "0,".repeat(200_000)), String::new()] {
        let keys = Upstream::start(move |_| {
            let body = answered.clone();
            async move { answer("200 OK", "", body) }
        });
        let keys = keys.await;
        let gateway = setup(&upstream, &format!("http://{}/keys", keys.address)).start().await;
        let reply = pay(&gateway, "k", &issuer.of("ann")).await;
        reply.problem(503, "token_keys_unavailable");
        assert_eq!(reply.header("retry-after"), Some("10"));
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn new_keys_of_a_file_are_read_on_a_reload() {
    let (issuer, upstream) = (Issuer::new(), Upstream::counting().await);
    let setup = setup(&upstream, "keys.json");
    setup.write("keys.json", &issuer.keys().to_string());
    let mut gateway = setup.start().await;
    let renewed = Issuer::new();
    setup.write("keys.json", &renewed.keys().to_string());
    gateway.signal("HUP");
    gateway.line("the configuration was reloaded").await;
    until("the keys are read again", || gateway.log().matches("read the keys of the issuer").count() == 2)
        .await;
    assert_eq!(pay(&gateway, "k", &renewed.of("ann")).await.status, 200);
    pay(&gateway, "k", &issuer.of("ann")).await.problem(401, "token_invalid");
    // An unusable file leaves the configuration in force.
    setup.write("keys.json", "{}");
    gateway.signal("HUP");
    gateway.line("the old one stays in force").await;
    assert_eq!(pay(&gateway, "k", &renewed.of("ann")).await.status, 200);
}

#[test]
fn missing_settings_of_tokens_are_errors() {
    let before = || Setup::before(([127, 0, 0, 1], 1).into()).with("--scope", "jwt");
    for (setup, says) in [
        (before(), "needs issuer"),
        (before().with("--issuer", "i"), "needs jwks"),
        (before().with("--issuer", "i").with("--jwks", "keys.json"), "needs audience"),
        (
            before()
                .with("--issuer", "i")
                .with("--audience", "a")
                .with("--jwks", "http://issuer.example/keys"),
            "neither an https URL",
        ),
        (
            before().with("--issuer", "i").with("--audience", "a").with("--jwks", "absent.json"),
            "could not use the keys",
        ),
    ] {
        let ended = setup.run(&["gateway"]);
        assert!(ended.code != Some(0) && ended.complained.contains(says), "{says}: {ended:?}");
    }
}
