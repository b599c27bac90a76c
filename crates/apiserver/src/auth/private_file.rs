//! Files that only their owner may read, replaced as a whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use super::pki::PkiError;

fn io<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(std::io::Error) -> PkiError + 'a {
    move |source| PkiError::Io { action, path: path.to_owned(), source }
}

/// Makes a directory that only we can enter; one that exists is closed to others.
pub(super) fn create_directory(path: &Path) -> Result<(), PkiError> {
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("create", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o700)).map_err(io("protect", path))
}

/// The content of a file, or `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<String>, PkiError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io("read", path)(error)),
    }
}

/// Replaces a file: after a crash it has the old content or the new, on disk, and mode 0600 in either case.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<(), PkiError> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let temporary = directory.join(name);
    let filled = fill(&temporary, content).and_then(|()| fs::rename(&temporary, path));
    if filled.is_err() {
        // Best effort: the error that matters is the first one.
        let _ = fs::remove_file(&temporary);
    }
    filled.map_err(io("write", path))?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(io("flush", directory))
}

fn fill(path: &Path, content: &[u8]) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_private_and_replaced_whole() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join("a/b");
        create_directory(&directory).unwrap();
        let file = directory.join("f");
        assert_eq!(read(&file).unwrap(), None);
        write(&file, b"one").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        write(&file, b"two").unwrap();
        assert_eq!(read(&file).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    }

    #[test]
    fn errors_name_the_path() {
        let home = tempfile::tempdir().unwrap();
        let taken = home.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let message = write(&taken, b"x").unwrap_err().to_string();
        assert!(message.starts_with(&format!("cannot write {}", taken.display())), "{message}");
        assert!(read(&taken).unwrap_err().to_string().starts_with("cannot read"));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "the temporary file is gone");
    }
}
