//! The objects that users write and components agree on: typed, whole, and without IO.
//!
//! Every field of KubeVirt's `kubevirt.io/v1` kinds has a place here, whether something implements it yet or not, so an
//! object that passes through a component loses nothing. The CRDs ([`crds::crds`]) are made from the same types, and
//! their schemas let nothing through that [`decode()`] refuses (but for fractional exponents of quantities, a quirk of the
//! pattern that Kubernetes prescribes), so whatever an API server has stored can be read.
//!
//! | folder | object |
//! |---|---|
//! | [`vm`] | `VirtualMachine`: lasting intent |
//! | [`vmi`] | `VirtualMachineInstance`: one living guest |
//! | [`migration`] | `VirtualMachineInstanceMigration`: one move of a guest |
//! | [`migrationpolicy`] | `MigrationPolicy`: options for moves, by label |
//! | [`kubevirt`] | `KubeVirt`: installation and configuration |
//! | [`names`] | labels, annotations, finalizers, condition types and reasons |
//! | [`defaults`] | what a guest is when its author does not say |
//! | [`validation`] | what is refused, with its field |
//! | [`gates`] | feature gates |
//! | [`values`] | quantities, MAC addresses, durations, CPU topologies: values that cannot hold nonsense |

pub mod crds;
pub mod decode;
pub mod defaults;
pub mod gates;
pub mod kubevirt;
pub mod meta;
pub mod migration;
pub mod migrationpolicy;
pub mod names;
pub mod object;
pub mod string_enum;
pub mod validation;
pub mod values;
pub mod vm;
pub mod vmi;
mod wire;

pub use decode::{DecodeError, FromJson, ToJson, decode, decode_json};
pub use kubevirt::KubeVirt;
pub use migration::VirtualMachineInstanceMigration;
pub use migrationpolicy::MigrationPolicy;
pub use vm::VirtualMachine;
pub use vmi::VirtualMachineInstance;
