//! Lists of named values, which newer calls use.

use crate::xdr::{Decoder, Encoder, XdrError};

/// The longest list that any call has.
pub(crate) const PARAMETERS_MAX: usize = 2048;

/// A named value.
#[derive(Debug, Clone, PartialEq)]
pub struct TypedParameter {
    /// Its name.
    pub field: String,
    /// Its value.
    pub value: TypedValue,
}

/// The types of values.
#[derive(Debug, Clone, PartialEq)]
pub enum TypedValue {
    /// `int`.
    Int(i32),
    /// `unsigned int`.
    Uint(u32),
    /// `long long`.
    Long(i64),
    /// `unsigned long long`.
    Ulong(u64),
    /// `double`.
    Double(f64),
    /// A truth.
    Boolean(bool),
    /// A text.
    Text(String),
}

impl TypedParameter {
    /// A named value.
    pub fn new(field: impl Into<String>, value: TypedValue) -> Self {
        Self { field: field.into(), value }
    }

    /// Appends it to the arguments of a call.
    pub fn encode(encoder: Encoder, parameter: &Self) -> Encoder {
        let encoder = encoder.string(&parameter.field);
        match &parameter.value {
            TypedValue::Int(value) => encoder.i32(1).i32(*value),
            TypedValue::Uint(value) => encoder.i32(2).u32(*value),
            TypedValue::Long(value) => encoder.i32(3).i64(*value),
            TypedValue::Ulong(value) => encoder.i32(4).u64(*value),
            TypedValue::Double(value) => encoder.i32(5).f64(*value),
            TypedValue::Boolean(value) => encoder.i32(6).i32(i32::from(*value)),
            TypedValue::Text(value) => encoder.i32(7).string(value),
        }
    }

    pub(crate) fn decode(decoder: &mut Decoder) -> Result<Self, XdrError> {
        let field = decoder.string()?;
        let value = match decoder.i32()? {
            1 => TypedValue::Int(decoder.i32()?),
            2 => TypedValue::Uint(decoder.u32()?),
            3 => TypedValue::Long(decoder.i64()?),
            4 => TypedValue::Ulong(decoder.u64()?),
            5 => TypedValue::Double(decoder.f64()?),
            6 => TypedValue::Boolean(decoder.i32()? != 0),
            7 => TypedValue::Text(decoder.string()?),
            value => return Err(XdrError::Discriminant { what: "type of a parameter", value }),
        };
        Ok(Self { field, value })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_value() -> impl Strategy<Value = TypedValue> {
        prop_oneof![
            any::<i32>().prop_map(TypedValue::Int),
            any::<u32>().prop_map(TypedValue::Uint),
            any::<i64>().prop_map(TypedValue::Long),
            any::<u64>().prop_map(TypedValue::Ulong),
            (-1e9..1e9f64).prop_map(TypedValue::Double),
            any::<bool>().prop_map(TypedValue::Boolean),
            any::<String>().prop_map(TypedValue::Text),
        ]
    }

    proptest! {
        #[test]
        fn parameters_survive_a_round_trip(field: String, value in any_value()) {
            let parameter = TypedParameter::new(field, value);
            let bytes = TypedParameter::encode(Encoder::new(), &parameter).finish();
            let mut decoder = Decoder::new(bytes);
            prop_assert_eq!(TypedParameter::decode(&mut decoder).unwrap(), parameter);
            prop_assert!(decoder.finish().is_ok());
        }
    }

    #[test]
    fn an_unknown_type_is_refused() {
        let bytes = Encoder::new().string("a").i32(8).finish();
        let error = TypedParameter::decode(&mut Decoder::new(bytes)).unwrap_err();
        assert_eq!(error, XdrError::Discriminant { what: "type of a parameter", value: 8 });
    }
}
