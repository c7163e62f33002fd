//! Key sets (RFC 7517): the public keys that an issuer signs tokens with.

use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Keys of one set that are read; an issuer has one for each signer, and the next one.
const KEYS_MAX: usize = 64;

/// The usable keys of an issuer.
#[derive(Debug, Default)]
pub(super) struct KeySet(Vec<Key>);

/// A public key for signatures.
#[derive(Debug, Clone)]
pub(super) struct Key {
    id: Option<String>,
    /// Algorithms that it is for; its own `alg` alone, if it names one.
    algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a set. Keys that are not for the signatures of tokens are left out.
    ///
    /// # Errors
    /// If it is no set, or has no usable key.
    pub(super) fn read(text: &[u8]) -> Result<Self, String> {
        let document: Document =
            serde_json::from_slice(text).map_err(|why| format!("it is no key set: {why}"))?;
        if document.keys.len() > KEYS_MAX {
            return Err(format!("it has more than {KEYS_MAX} keys"));
        }
        let keys: Vec<Key> = document.keys.into_iter().filter_map(Key::of).collect();
        match keys.is_empty() {
            true => Err("it has no key for signatures (RSA from 2048 bits, EC, Ed25519)".into()),
            false => Ok(Self(keys)),
        }
    }

    /// The key of a token with this header. A token without `kid` is for the only key.
    pub(super) fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&Key> {
        let is_for = |key: &&Key| key.algorithms.contains(&algorithm);
        match (id, self.0.as_slice()) {
            (None, [only]) => Some(only).filter(is_for),
            (None, _) => None,
            (Some(id), keys) => {
                keys.iter().filter(|key| key.id.as_deref() == Some(id)).find(is_for)
            }
        }
    }

    /// Whether a key has this id; without an id, whether there is one key alone.
    pub(super) fn knows(&self, id: Option<&str>) -> bool {
        match id {
            Some(id) => self.0.iter().any(|key| key.id.as_deref() == Some(id)),
            None => self.0.len() == 1,
        }
    }
}

impl Key {
    fn of(value: Value) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(value).ok()?;
        let common = &jwk.common;
        let is_for_signatures =
            common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let verifies = common.key_operations.as_ref();
        let verifies = verifies.is_none_or(|all| all.contains(&KeyOperations::Verify));
        let mut algorithms = by_kind(&jwk.algorithm);
        if let Some(own) = common.key_algorithm {
            algorithms.retain(|algorithm| is_same(*algorithm, own));
        }
        if !is_for_signatures || !verifies || algorithms.is_empty() {
            return None;
        }
        let key = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { id: jwk.common.key_id, algorithms, key })
    }
}

/// Asymmetric algorithms by the kind of a key. A shared secret has none (AUTH-02).
#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "an enum of another package, which may have more variants"
)]
fn by_kind(kind: &AlgorithmParameters) -> Vec<Algorithm> {
    match kind {
        AlgorithmParameters::RSA(_) => vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(it) => by_curve(&it.curve),
        AlgorithmParameters::OctetKeyPair(it) => by_curve(&it.curve),
        _ => Vec::new(),
    }
}

#[allow(
    clippy::wildcard_enum_match_arm,
    reason = "an enum of another package, which may have more variants"
)]
fn by_curve(curve: &EllipticCurve) -> Vec<Algorithm> {
    match curve {
        EllipticCurve::P256 => vec![Algorithm::ES256],
        EllipticCurve::P384 => vec![Algorithm::ES384],
        EllipticCurve::Ed25519 => vec![Algorithm::EdDSA],
        _ => Vec::new(),
    }
}

/// Whether both are the same algorithm.
fn is_same(algorithm: Algorithm, named: KeyAlgorithm) -> bool {
    named.to_string().parse::<Algorithm>().is_ok_and(|named| named == algorithm)
}
