//! Objects in files: YAML with several documents, JSON, lists, directories, standard input.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde_json::Value;

/// Where objects come from.
#[derive(clap::Args, Clone)]
pub(crate) struct Sources {
    /// File or directory with objects, or `-` for standard input; may be given several times.
    #[arg(short = 'f', long = "filename", alias = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Look into directories of directories too.
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// An object and where it stands.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    /// The file, and the document in it where there are several.
    pub(crate) place: String,
    pub(crate) object: Value,
}

impl Sources {
    /// No file was named.
    pub(crate) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// All objects, in order.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<Manifest>> {
        let mut manifests = Vec::new();
        for file in &self.files {
            if file.as_os_str() == "-" {
                let mut text = String::new();
                std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
                manifests.extend(parse("standard input", &text)?);
                continue;
            }
            for path in self.expand(file, true)? {
                let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                manifests.extend(parse(&path.display().to_string(), &text)?);
            }
        }
        if manifests.is_empty() {
            bail!("no objects were found: name a file with -f FILE, or - for standard input");
        }
        Ok(manifests)
    }

    /// The file, or the files of the directory in the order of their names.
    fn expand(&self, path: &Path, is_named: bool) -> anyhow::Result<Vec<PathBuf>> {
        if !path.is_dir() {
            let known = path.extension().is_some_and(|kind| ["yaml", "yml", "json"].iter().any(|known| kind == *known));
            return Ok(if is_named || known { vec![path.to_owned()] } else { Vec::new() });
        }
        if !is_named && !self.recursive {
            return Ok(Vec::new());
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut entries: Vec<PathBuf> =
            entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
        entries.sort();
        let mut found = Vec::new();
        for entry in entries {
            found.extend(self.expand(&entry, false)?);
        }
        Ok(found)
    }
}

/// The objects of a text.
pub(crate) fn parse(place: &str, text: &str) -> anyhow::Result<Vec<Manifest>> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        legacy_octal_numbers: true,
        with_snippet: false,
    };
    let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)
        .map_err(|error| anyhow::anyhow!("{place}: {}", error.to_string().lines().next().unwrap_or_default()))?;
    let several = documents.len() > 1;
    let mut manifests = Vec::new();
    for (index, document) in documents.into_iter().enumerate().filter(|(_, document)| !document.is_null()) {
        let place = if several { format!("{place}, document {}", index + 1) } else { place.to_owned() };
        if !document["apiVersion"].is_string() || !document["kind"].is_string() {
            bail!("{place}: this is no object: apiVersion and kind are missing");
        }
        match document["items"]
            .as_array()
            .filter(|_| document["kind"].as_str().is_some_and(|kind| kind.ends_with("List")))
        {
            Some(items) => {
                manifests.extend(items.iter().map(|item| Manifest { place: place.clone(), object: item.clone() }));
            }
            None => manifests.push(Manifest { place, object: document }),
        }
    }
    Ok(manifests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_lists_become_objects() {
        let text = "# nothing\n---\napiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: A}\n- {apiVersion: v1, kind: B}\n---\n{\"apiVersion\": \"v1\", \"kind\": \"C\"}\n---\n";
        let found = parse("f.yaml", text).unwrap();
        let kinds: Vec<&str> = found.iter().map(|manifest| manifest.object["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["A", "B", "C"]);
        assert!(found[2].place.starts_with("f.yaml, document "), "{}", found[2].place);
    }

    #[test]
    fn mistakes_name_their_place() {
        for (text, expected) in [
            ("kind: A\n", "f: this is no object"),
            ("a: [\n", "f: "),
            ("apiVersion: v1\nkind: A\nkind: B\n", "duplicate"),
        ] {
            let error = parse("f", text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn directories_are_read_in_order() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("more")).unwrap();
        for (name, kind) in [("b.yaml", "B"), ("a.yml", "A"), ("note.txt", "N"), ("more/c.json", "C")] {
            std::fs::write(directory.path().join(name), format!("{{\"apiVersion\": \"v1\", \"kind\": \"{kind}\"}}"))
                .unwrap();
        }
        let kinds = |recursive| {
            let sources = Sources { files: vec![directory.path().to_owned()], recursive };
            let found = sources.read().unwrap();
            found.iter().map(|manifest| manifest.object["kind"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(kinds(false), ["A", "B"]);
        assert_eq!(kinds(true), ["A", "B", "C"]);
    }
}
