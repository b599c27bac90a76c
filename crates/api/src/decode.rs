//! Reading an object with errors that say where: the path of the field, the value, and what was expected. And parts of
//! objects that are read and written alone.

use serde_json::Value;

pub use ferrovirt_kubernetes::json::{DecodeError, FromJson};

/// Reads a typed object from JSON that is already parsed.
pub fn decode<T: FromJson>(value: &Value) -> Result<T, DecodeError> {
    T::from_json(value)
}

/// Reads a typed object from JSON text.
pub fn decode_json<T: FromJson>(text: &[u8]) -> Result<T, DecodeError> {
    let value = serde_json::from_slice(text)
        .map_err(|error| DecodeError { path: String::new(), problem: error.to_string() })?;
    decode(&value)
}

/// Something that is written by code which is compiled in this crate.
pub trait ToJson {
    /// Writes it as JSON.
    fn to_json(&self) -> Result<Value, serde_json::Error>;
}

macro_rules! parts {
    ($($part:ty,)*) => {$(
        // Neither generic nor inlined: only so is all that they call compiled in this crate and in no other.
        impl FromJson for $part {
            #[inline(never)]
            fn from_json(value: &Value) -> Result<Self, DecodeError> {
                ferrovirt_kubernetes::json::read(value)
            }
        }

        impl ToJson for $part {
            #[inline(never)]
            fn to_json(&self) -> Result<Value, serde_json::Error> {
                let erased: &dyn erased_serde::Serialize = self;
                serde_json::to_value(erased)
            }
        }
    )*};
}

parts! {
    crate::migration::VirtualMachineInstanceMigrationStatus,
    crate::vm::VirtualMachineSpec,
    crate::vm::VirtualMachineStatus,
    crate::vmi::DomainSpec,
    crate::vmi::MigrationState,
    crate::vmi::VirtualMachineInstanceSpec,
    crate::vmi::VirtualMachineInstanceStatus,
}
