//! Amounts of CPU, memory and storage in Kubernetes' notation: `500m`, `1.5`, `2Gi`, `10k`, `12e6`.
//!
//! A quantity is a whole number of billionths, so sums and comparisons are exact. It remembers how it was written:
//! reading and writing an object changes nothing, while [`Display`](fmt::Display) prints the canonical form that
//! Kubernetes prints (the largest suffix that leaves a whole number).

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// An amount. Equality and order look at the amount, not at how it was written: `1Gi` equals `1024Mi`.
#[derive(Clone, Debug, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
    written: Written,
}

/// The family of suffixes that a quantity prints with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`: powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `e6`, …: powers of 1000 in scientific notation.
    DecimalExponent,
}

/// How a quantity appeared on the wire.
#[derive(Clone, Debug, Default)]
enum Written {
    /// It was computed; it is written in canonical form.
    #[default]
    Canonical,
    /// As a JSON number.
    Integer(i64),
    /// As a string.
    Text(Box<str>),
}

/// Text that is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidQuantity {
    /// There is no number, or something foreign follows it.
    #[error("quantities must match the regular expression '{SHAPE}'")]
    Shape,
    /// The suffix is not one of the known ones.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

/// The expression that Kubernetes quotes in its error; looser than what it accepts.
const SHAPE: &str = "^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$";
/// The pattern that every quantity has in a CRD.
const PATTERN: &str = concat!(
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))",
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
);

const NANO: i128 = 1_000_000_000;
const DECIMAL_SUFFIXES: [(&str, i32); 10] =
    [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
const BINARY_SUFFIXES: [(&str, u32); 6] = [("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40), ("Pi", 50), ("Ei", 60)];

impl Quantity {
    /// A number of bytes, printed with binary suffixes.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        Self::computed(i128::from(bytes) * NANO, Format::BinarySi)
    }

    /// A number of thousandths, as CPU time is counted.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        Self::computed(i128::from(millis) * (NANO / 1_000), Format::DecimalSi)
    }

    fn computed(nanos: i128, format: Format) -> Self {
        Self { nanos, format, written: Written::Canonical }
    }

    /// The amount in billionths.
    #[must_use]
    pub const fn nanos(&self) -> i128 {
        self.nanos
    }

    /// The amount as a whole number, rounded away from zero and cut off at the ends of the range.
    #[must_use]
    pub fn value(&self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANO))
    }

    /// The amount in thousandths, rounded away from zero and cut off at the ends of the range.
    #[must_use]
    pub fn milli_value(&self) -> i64 {
        saturate(divide_away_from_zero(self.nanos, NANO / 1_000))
    }

    /// The amount as a floating point number, for ratios and metrics.
    #[must_use]
    pub fn as_f64(&self) -> f64 {
        self.nanos as f64 / NANO as f64
    }

    /// Whether the amount is nothing.
    #[must_use]
    pub const fn is_zero(&self) -> bool {
        self.nanos == 0
    }

    /// The suffixes that it prints with.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// The sum, in the format of `self` unless that is zero.
    #[must_use]
    pub fn checked_add(&self, other: &Self) -> Option<Self> {
        let format = if self.is_zero() { other.format } else { self.format };
        Some(Self::computed(self.nanos.checked_add(other.nanos)?, format))
    }

    /// The difference, in the format of `self` unless that is zero.
    #[must_use]
    pub fn checked_sub(&self, other: &Self) -> Option<Self> {
        let format = if self.is_zero() { other.format } else { self.format };
        Some(Self::computed(self.nanos.checked_sub(other.nanos)?, format))
    }

    /// The amount, so many times.
    #[must_use]
    pub fn checked_mul(&self, factor: i64) -> Option<Self> {
        Some(Self::computed(self.nanos.checked_mul(i128::from(factor))?, self.format))
    }

    /// The quantity as it was written, or in canonical form when it was computed.
    #[must_use]
    pub fn as_written(&self) -> Cow<'_, str> {
        match &self.written {
            Written::Canonical => Cow::Owned(self.to_string()),
            Written::Integer(number) => Cow::Owned(number.to_string()),
            Written::Text(text) => Cow::Borrowed(text),
        }
    }
}

fn saturate(number: i128) -> i64 {
    i64::try_from(number).unwrap_or(if number < 0 { i64::MIN } else { i64::MAX })
}

fn divide_away_from_zero(number: i128, by: i128) -> i128 {
    let rounded = if number % by == 0 { 0 } else { number.signum() };
    number / by + rounded
}

/// A number split where its parts differ in meaning.
struct Parts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    suffix: &'a str,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let negative = text.starts_with('-');
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        let (whole, rest) = split_digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => split_digits(rest),
            None => ("", rest),
        };
        let has_number = !whole.is_empty() || !fraction.is_empty();
        let after_letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let after_sign = after_letters.strip_prefix(['-', '+']).unwrap_or(after_letters);
        let well_formed = has_number && after_sign.bytes().all(|byte| byte.is_ascii_digit());
        well_formed.then_some(Self { negative, whole, fraction, suffix })
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = Parts::split(text).ok_or(InvalidQuantity::Shape)?;
        let (size, format) = magnitude(&parts)?;
        let nanos = if parts.negative { -size } else { size };
        Ok(Self { nanos, format, written: Written::Text(text.into()) })
    }
}

/// The amount in billionths without its sign. What is finer than a billionth is rounded up, so nothing becomes zero
/// that was not; what is too large is cut off.
fn magnitude(parts: &Parts<'_>) -> Result<(i128, Format), InvalidQuantity> {
    if let Some((_, exponent)) = DECIMAL_SUFFIXES.iter().find(|(suffix, _)| *suffix == parts.suffix) {
        return Ok((decimal(parts.whole, parts.fraction, *exponent), Format::DecimalSi));
    }
    if let Some((_, exponent)) = BINARY_SUFFIXES.iter().find(|(suffix, _)| *suffix == parts.suffix) {
        let size = binary(parts.whole, parts.fraction, *exponent);
        // Less than one has no binary suffix.
        let format = if (1..NANO).contains(&size) { Format::DecimalSi } else { Format::BinarySi };
        return Ok((size, format));
    }
    let exponent = parts.suffix.strip_prefix(['e', 'E']).ok_or(InvalidQuantity::Suffix)?;
    let exponent = exponent.parse::<i64>().map_err(|_| InvalidQuantity::Suffix)?;
    // No amount that fits has an exponent beyond this.
    let exponent = i32::try_from(exponent.clamp(-100_000, 100_000)).unwrap_or(0);
    Ok((decimal(parts.whole, parts.fraction, exponent), Format::DecimalExponent))
}

/// `whole.fraction × 10^exponent` in billionths: the decimal point moves, digits before it count.
fn decimal(whole: &str, fraction: &str, exponent: i32) -> i128 {
    let digits = [whole, fraction].concat();
    let point = whole.len() as i64 + i64::from(exponent) + 9;
    let mut size = 0_i128;
    let mut rest_counts = false;
    for (position, digit) in digits.bytes().enumerate() {
        if (position as i64) < point {
            size = size.saturating_mul(10).saturating_add(i128::from(digit - b'0'));
        } else {
            rest_counts |= digit != b'0';
        }
    }
    let zeros = point - digits.len() as i64;
    for _ in 0..zeros.clamp(0, 40) {
        size = size.saturating_mul(10);
    }
    size.saturating_add(i128::from(rest_counts))
}

/// `whole.fraction × 2^exponent` in billionths, at most 2^63 - 1.
fn binary(whole: &str, fraction: &str, exponent: u32) -> i128 {
    const LIMIT: i128 = i64::MAX as i128 * NANO;
    let factor = 1_i128 << exponent;
    let whole = decimal(whole, "", -9).saturating_mul(factor);
    if whole > i128::from(i64::MAX) {
        return LIMIT;
    }
    // Eighteen places of the fraction are exact here; what is beyond can only round up.
    let (exact, beyond) = fraction.split_at(fraction.len().min(18));
    let scale = 10_i128.pow(exact.len() as u32);
    let scaled = decimal(exact, "", -9) * factor;
    let (units, rest) = (scaled / scale, scaled % scale);
    let below_unit = rest * NANO;
    let round_up = below_unit % scale != 0 || beyond.bytes().any(|digit| digit != b'0');
    let fraction = units * NANO + below_unit / scale + i128::from(round_up);
    (whole * NANO + fraction).min(LIMIT)
}

/// Prints the canonical form: the largest suffix of its family that leaves a whole number.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.nanos % NANO == 0;
        let large = self.nanos.abs() >= 1024 * NANO;
        match self.format {
            // Binary suffixes neither go below one nor split it; such amounts print as decimals.
            Format::BinarySi if whole && large => {
                let amount = self.nanos / NANO;
                let fits = |(_, exponent): &&(&str, u32)| amount % (1_i128 << exponent) == 0;
                match BINARY_SUFFIXES.iter().rev().find(fits) {
                    Some((suffix, exponent)) => write!(f, "{}{suffix}", amount >> exponent),
                    None => write!(f, "{amount}"),
                }
            }
            Format::BinarySi | Format::DecimalSi => {
                let (amount, exponent) = reduce(self.nanos, 18);
                let suffix =
                    DECIMAL_SUFFIXES.iter().find(|(_, known)| *known == exponent).map_or("", |(suffix, _)| suffix);
                write!(f, "{amount}{suffix}")
            }
            Format::DecimalExponent => match reduce(self.nanos, i32::MAX) {
                (amount, 0) => write!(f, "{amount}"),
                (amount, exponent) => write!(f, "{amount}e{exponent}"),
            },
        }
    }
}

/// Moves thousands from the amount into the exponent as long as nothing is lost.
fn reduce(nanos: i128, highest: i32) -> (i128, i32) {
    if nanos == 0 {
        return (0, 0);
    }
    let (mut amount, mut exponent) = (nanos, -9);
    while amount % 1_000 == 0 && exponent < highest {
        amount /= 1_000;
        exponent += 3;
    }
    (amount, exponent)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl From<i64> for Quantity {
    fn from(number: i64) -> Self {
        let nanos = i128::from(number) * NANO;
        Self { nanos, format: Format::DecimalSi, written: Written::Integer(number) }
    }
}

impl From<&Quantity> for k8s_openapi::apimachinery::pkg::api::resource::Quantity {
    fn from(quantity: &Quantity) -> Self {
        Self(quantity.as_written().into_owned())
    }
}

impl TryFrom<&k8s_openapi::apimachinery::pkg::api::resource::Quantity> for Quantity {
    type Error = InvalidQuantity;

    fn try_from(quantity: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> Result<Self, Self::Error> {
        quantity.0.parse()
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.written {
            Written::Canonical => serializer.collect_str(self),
            Written::Integer(number) => serializer.serialize_i64(*number),
            Written::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberOrText;

        impl Visitor<'_> for NumberOrText {
            type Value = Quantity;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m, 2 or 1Gi")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
                text.parse().map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Quantity, E> {
                Ok(Quantity::from(number))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Quantity, E> {
                let small = i64::try_from(number).map(Quantity::from);
                small.map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Quantity, E> {
                number.to_string().parse().map_err(|_| E::invalid_value(Unexpected::Float(number), &self))
            }
        }

        deserializer.deserialize_any(NumberOrText)
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [{ "type": "integer" }, { "type": "string" }],
            "pattern": PATTERN,
            "x-kubernetes-int-or-string": true,
        })
    }
}

#[cfg(test)]
#[path = "quantity_tests.rs"]
mod tests;
