//! Whom a command is about: `NAME`, `vm/NAME`, `vmi/NAME`, `vm/NAME/NAMESPACE`, `user@vm/NAME`.

use anyhow::{Context, bail};

/// A machine, or the guest that it runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// VirtualMachine
    Machine,
    /// VirtualMachineInstance
    Guest,
}

impl Kind {
    /// Reads a kind in any of the forms that kubectl takes.
    pub(crate) fn parse(word: &str) -> anyhow::Result<Self> {
        match word.to_lowercase().as_str() {
            "vm" | "vms" | "virtualmachine" | "virtualmachines" => Ok(Self::Machine),
            "vmi" | "vmis" | "virtualmachineinstance" | "virtualmachineinstances" => Ok(Self::Guest),
            _ => bail!("unsupported resource type '{word}': use vm or vmi"),
        }
    }

    /// `vm` or `vmi`
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Machine => "vm",
            Self::Guest => "vmi",
        }
    }

    /// The name in paths.
    pub(crate) fn resource(self) -> &'static str {
        match self {
            Self::Machine => "virtualmachines",
            Self::Guest => "virtualmachineinstances",
        }
    }
}

/// Whom a command is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) namespace: Option<String>,
}

impl Target {
    /// `TYPE/NAME` or `TYPE/NAME/NAMESPACE`. A name alone means `usual`, if there is a usual kind.
    pub(crate) fn parse(text: &str, usual: Option<Kind>) -> anyhow::Result<Self> {
        let parts: Vec<&str> = text.split('/').collect();
        let (kind, name, namespace) = match parts[..] {
            [""] => bail!("target cannot be empty"),
            [name] => {
                (usual.context("target must contain type and name separated by '/', such as vm/NAME")?, name, None)
            }
            [kind, name] => (Kind::parse(kind)?, name, None),
            [_, _, ""] => bail!("namespace cannot be empty"),
            [kind, name, namespace] => (Kind::parse(kind)?, name, Some(namespace.to_owned())),
            _ => bail!("target is not valid with more than two '/'"),
        };
        if name.is_empty() {
            bail!("name cannot be empty");
        }
        Ok(Self { kind, name: name.to_owned(), namespace })
    }

    /// A machine that may be written as `vm/NAME`.
    pub(crate) fn machine(text: &str) -> anyhow::Result<String> {
        let target = Self::parse(text, Some(Kind::Machine))?;
        Ok(target.name)
    }

    /// A guest, which has the name of its machine.
    pub(crate) fn guest(text: &str) -> anyhow::Result<String> {
        let target = Self::parse(text, Some(Kind::Guest))?;
        Ok(target.name)
    }

    /// `vm NAME`, `vmi NAME`, or one word as above.
    pub(crate) fn words(words: &[String]) -> anyhow::Result<Self> {
        match words {
            [one] => Self::parse(one, Some(Kind::Machine)),
            [kind, name] if !name.contains('/') && !name.is_empty() => {
                Ok(Self { kind: Kind::parse(kind)?, name: name.clone(), namespace: None })
            }
            _ => bail!("name one machine or guest: vm NAME, vmi NAME, or vm/NAME"),
        }
    }
}

/// A target with the user to log in as: `user@vm/NAME`.
pub(crate) fn with_user(text: &str) -> anyhow::Result<(Option<String>, Target)> {
    match text.split_once('@') {
        Some(("", _)) => bail!("expected username before '@'"),
        Some((_, "")) => bail!("expected target after '@'"),
        Some((user, target)) => Ok((Some(user.to_owned()), Target::parse(target, Some(Kind::Machine))?)),
        None => Ok((None, Target::parse(text, Some(Kind::Machine))?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_target_is_read() {
        let target = |kind, name: &str, namespace: Option<&str>| Target {
            kind,
            name: name.to_owned(),
            namespace: namespace.map(str::to_owned),
        };
        let parse = |text| Target::parse(text, Some(Kind::Machine)).unwrap();
        assert_eq!(parse("web"), target(Kind::Machine, "web", None));
        assert_eq!(parse("vm/web"), target(Kind::Machine, "web", None));
        assert_eq!(parse("VirtualMachineInstances/web/shop"), target(Kind::Guest, "web", Some("shop")));
        for wrong in ["", "pod/a", "vm/", "vm/a/", "vm/a/b/c"] {
            assert!(Target::parse(wrong, Some(Kind::Machine)).is_err(), "{wrong}");
        }
        assert!(Target::parse("web", None).is_err());
        let words = |words: &[&str]| Target::words(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["vmi", "web"]).unwrap(), target(Kind::Guest, "web", None));
        assert_eq!(words(&["vm/web"]).unwrap(), target(Kind::Machine, "web", None));
        assert!(words(&["vm", "a/b"]).is_err() && words(&["node", "a"]).is_err());
    }

    #[test]
    fn a_user_may_be_named() {
        assert_eq!(with_user("jane@vm/web").unwrap().0.as_deref(), Some("jane"));
        assert_eq!(with_user("vm/web").unwrap().0, None);
        assert!(with_user("@vm/web").is_err() && with_user("jane@").is_err());
    }
}
