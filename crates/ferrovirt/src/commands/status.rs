//! `ferrovirt status`

use crate::local::Home;

/// Says whether the cluster runs; fails when it does not, so that scripts can ask.
pub(crate) fn run(home: &Home) -> anyhow::Result<()> {
    match home.process()? {
        Some(process) => {
            println!("running: process {}, https://{}", process.pid, process.address);
            println!("state:   {}", home.directory()?.display());
            Ok(())
        }
        None => anyhow::bail!("the local cluster does not run; start it with: ferrovirt up"),
    }
}
