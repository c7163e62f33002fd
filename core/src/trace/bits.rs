//! Floating point numbers in a trace, as their bits: JSON has no infinity.

use serde::{Deserialize, Deserializer, Serializer};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
pub(super) fn serialize<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(number.to_bits())
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    u64::deserialize(from).map(f64::from_bits)
}

/// A number that may be absent.
pub(super) mod option {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        number: &Option<f64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        number.map(f64::to_bits).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(f64::from_bits))
    }
}
