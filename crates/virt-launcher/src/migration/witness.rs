//! The proof that both sides have the same storage: a small file beside each disk that is not copied, made by the source and looked for
//! by the target. libvirt can only guess from the kind of file system, and a guest on another node's disk would be two guests' harm.

use std::io::Write;
use std::path::Path;

use ferrovirt_launcher_rpc::migration::Witness;

use crate::description::Description;

/// Files of the source. They are removed when this is dropped.
#[derive(Debug, Default)]
pub struct Witnesses(Vec<Witness>);

impl Witnesses {
    /// Makes a file beside every disk that is a file, can be written and is not copied; second, the volumes where that was not possible.
    pub fn place(description: &Description, copied: &[String], id: &str) -> (Self, Vec<String>) {
        let (mut placed, mut unproven) = (Self::default(), Vec::new());
        for (target, file) in &description.files {
            if copied.contains(target) || description.read_only.contains(target) {
                continue;
            }
            let volume = description.disks.iter().find(|(_, disk)| disk == target).map_or(target, |(volume, _)| volume);
            match place(Path::new(file), id) {
                Ok(path) => placed.0.push(Witness { volume: volume.clone(), path }),
                Err(error) => {
                    tracing::warn!(%error, volume, file, "nothing can be written beside the disk");
                    unproven.push(volume.clone());
                }
            }
        }
        (placed, unproven)
    }

    /// What the target has to find.
    pub fn list(&self) -> &[Witness] {
        &self.0
    }
}

fn place(disk: &Path, id: &str) -> std::io::Result<String> {
    let path = disk.with_file_name(format!(".move-{id}"));
    let mut file = std::fs::File::create(&path)?;
    file.write_all(id.as_bytes())?;
    file.sync_all()?;
    Ok(path.to_string_lossy().into_owned())
}

impl Drop for Witnesses {
    fn drop(&mut self) {
        for witness in &self.0 {
            if let Err(error) = std::fs::remove_file(&witness.path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(%error, path = witness.path, "a file beside a disk could not be removed");
            }
        }
    }
}

/// Looks for what the source has made.
pub fn check(witnesses: &[Witness], id: &str) -> Result<(), String> {
    for Witness { volume, path } in witnesses {
        if std::fs::read_to_string(path).ok().as_deref() != Some(id) {
            return Err(format!(
                "the volume {volume} is not shared between the nodes: what the source writes beside its disk does not appear here"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(file: &Path) -> Description {
        let file = file.to_string_lossy().into_owned();
        Description {
            disks: vec![("data".to_owned(), "vda".to_owned())],
            files: vec![("vda".to_owned(), file)],
            ..Description::default()
        }
    }

    #[test]
    fn shared_storage_is_proven_and_nothing_stays() {
        let directory = tempfile::tempdir().unwrap();
        let description = description(&directory.path().join("disk.img"));
        let (placed, unproven) = Witnesses::place(&description, &[], "m");
        assert!(unproven.is_empty());
        assert_eq!(check(placed.list(), "m"), Ok(()));
        let told = placed.list().to_vec();
        assert!(check(&told, "other").unwrap_err().contains("data"));
        drop(placed);
        assert!(check(&told, "m").is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn copied_and_read_only_disks_need_no_proof() {
        let mut description = description(Path::new("/nonexistent/disk.img"));
        assert_eq!(Witnesses::place(&description, &[], "m").1, ["data"]);
        assert!(Witnesses::place(&description, &["vda".to_owned()], "m").1.is_empty());
        description.read_only.push("vda".to_owned());
        assert!(Witnesses::place(&description, &[], "m").1.is_empty());
    }
}
