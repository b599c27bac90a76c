//! `ferrovirt kubeconfig`

use anyhow::{Context, bail};

use crate::local::Home;

/// Prints the kubeconfig of the running cluster.
pub(crate) fn run(home: &Home) -> anyhow::Result<()> {
    if home.process()?.is_none() {
        bail!("the local cluster does not run; start it with: ferrovirt up");
    }
    let path = home.kubeconfig()?;
    print!("{}", std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?);
    Ok(())
}
