//! More than any machine has. Guests that ask for more are admitted, as on KubeVirt: no node takes them, and none starts them.

/// More bytes do not fit below the addresses of any processor: 52 bits of them.
pub const MOST_MEMORY_OF_A_MACHINE: i64 = 1 << 52;
/// No machine type has more virtual CPUs.
pub const MOST_VCPUS_OF_A_MACHINE: u32 = 4096;
