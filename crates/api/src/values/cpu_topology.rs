//! Sockets × cores × threads, with a product that is known to fit.

use std::num::NonZeroU32;

/// A processor topology whose number of virtual CPUs fits into 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CpuTopology {
    sockets: NonZeroU32,
    cores: NonZeroU32,
    threads: NonZeroU32,
    vcpus: NonZeroU32,
}

/// A topology with more virtual CPUs than can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{sockets} sockets × {cores} cores × {threads} threads are more CPUs than can be counted")]
pub struct TooManyCpus {
    /// Sockets.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
}

impl CpuTopology {
    /// Makes a topology. A zero counts as unset and means one, as everywhere in the API.
    pub fn new(sockets: u32, cores: u32, threads: u32) -> Result<Self, TooManyCpus> {
        let [s, c, t] = [sockets, cores, threads].map(|count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN));
        let vcpus = s.checked_mul(c).and_then(|product| product.checked_mul(t));
        let vcpus = vcpus.ok_or(TooManyCpus { sockets, cores, threads })?;
        Ok(Self { sockets: s, cores: c, threads: t, vcpus })
    }

    /// Sockets.
    #[must_use]
    pub const fn sockets(self) -> u32 {
        self.sockets.get()
    }

    /// Cores per socket.
    #[must_use]
    pub const fn cores(self) -> u32 {
        self.cores.get()
    }

    /// Threads per core.
    #[must_use]
    pub const fn threads(self) -> u32 {
        self.threads.get()
    }

    /// Virtual CPUs in all.
    #[must_use]
    pub const fn vcpus(self) -> u32 {
        self.vcpus.get()
    }

    /// The same cores and threads on another number of sockets, as CPU hotplug makes it.
    pub fn with_sockets(self, sockets: u32) -> Result<Self, TooManyCpus> {
        Self::new(sockets, self.cores(), self.threads())
    }
}

impl Default for CpuTopology {
    fn default() -> Self {
        let one = NonZeroU32::MIN;
        Self { sockets: one, cores: one, threads: one, vcpus: one }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_means_one() {
        assert_eq!(CpuTopology::new(0, 4, 0).unwrap().vcpus(), 4);
        assert_eq!(CpuTopology::new(0, 0, 0).unwrap(), CpuTopology::default());
    }

    #[test]
    fn a_product_that_does_not_fit_is_refused() {
        let error = CpuTopology::new(65_536, 65_536, 1).unwrap_err();
        assert_eq!(error, TooManyCpus { sockets: 65_536, cores: 65_536, threads: 1 });
        assert_eq!(CpuTopology::new(65_535, 65_537, 1).unwrap().vcpus(), u32::MAX);
    }

    #[test]
    fn hotplug_changes_sockets_only() {
        let plugged = CpuTopology::new(1, 2, 2).unwrap().with_sockets(4).unwrap();
        assert_eq!((plugged.sockets(), plugged.cores(), plugged.threads(), plugged.vcpus()), (4, 2, 2, 16));
    }
}
