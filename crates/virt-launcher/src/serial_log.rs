//! Keeps the log of the guest's serial port from filling the node: the guest decides how much it writes.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use ferrovirt_launcher_rpc::paths;
use tokio::time::{MissedTickBehavior, interval};

const LOG_MAX: u64 = 4 * 1024 * 1024;
/// A serial port under emulation writes some MiB in this time at most.
const INTERVAL: Duration = Duration::from_secs(5);

/// Empties the log whenever it is too large.
pub async fn keep_small(uid: String) {
    let path = paths::serial_log(&uid);
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = empty_if_large(Path::new(&path), LOG_MAX) {
            tracing::warn!(%error, path, "the serial log cannot be emptied");
        }
    }
}

/// By the space that it takes, not by its length: a writer that does not append leaves a hole in front.
fn empty_if_large(path: &Path, limit: u64) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.blocks() * 512 > limit => {
            std::fs::OpenOptions::new().write(true).open(path)?.set_len(0)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_large_log_is_emptied_and_goes_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut writer = std::fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        writer.write_all(&[b'x'; 4096]).unwrap();
        empty_if_large(&path, 4096).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 4096);
        writer.write_all(&[b'x'; 4096]).unwrap();
        empty_if_large(&path, 4096).unwrap();
        writer.write_all(b"after").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"after");
    }

    #[test]
    fn no_log_is_no_error() {
        empty_if_large(Path::new("/nonexistent"), 1).unwrap();
    }
}
