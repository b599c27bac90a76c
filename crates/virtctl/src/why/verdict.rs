//! The result: the path that was followed, and the first thing on it that blocks.

use std::fmt;

use serde_json::{Value, json};

use crate::output::plain;

/// One object on the path, with its state in a word or two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) state: String,
}

/// Something that is wrong, or worth knowing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// `Pod default/virt-launcher-web-x`
    pub(super) object: String,
    /// One word for programs.
    pub(super) reason: &'static str,
    /// What is wrong, in plain words.
    pub(super) what: String,
    /// What another part of the system says about it, in its own words.
    pub(super) evidence: Option<String>,
    /// What to do.
    pub(super) fix: String,
}

impl Finding {
    /// Something about an object.
    pub(super) fn new(
        object: impl Into<String>,
        reason: &'static str,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { object: object.into(), reason, what: what.into(), evidence: None, fix: fix.into() }
    }

    /// With somebody's words.
    pub(super) fn says(mut self, evidence: Option<String>) -> Self {
        self.evidence = evidence.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        self
    }

    fn to_json(&self) -> Value {
        json!({
            "object": self.object, "reason": self.reason, "message": self.what, "evidence": self.evidence, "fix": self.fix,
        })
    }
}

/// What `virtctl why` answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) subject: String,
    pub(super) path: Vec<Step>,
    /// The first thing that blocks; none when the machine is healthy.
    pub(super) blocker: Option<Finding>,
    /// What does not block, but may matter.
    pub(super) notes: Vec<String>,
}

impl Verdict {
    pub(super) fn is_healthy(&self) -> bool {
        self.blocker.is_none()
    }

    pub(super) fn to_json(&self) -> Value {
        let step = |step: &Step| json!({"kind": step.kind, "name": step.name, "state": step.state});
        json!({
            "subject": self.subject,
            "healthy": self.is_healthy(),
            "path": self.path.iter().map(step).collect::<Vec<_>>(),
            "blocker": self.blocker.as_ref().map(Finding::to_json),
            "notes": self.notes,
        })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text)?;
        out.write_str(&plain(&text))
    }
}

impl Verdict {
    fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        match &self.blocker {
            None => writeln!(out, "{} is healthy.", self.subject)?,
            Some(finding) => {
                writeln!(out, "{}: {}", self.subject, finding.what)?;
                writeln!(out, "  object: {}", finding.object)?;
                writeln!(out, "  reason: {}", finding.reason)?;
                if let Some(evidence) = &finding.evidence {
                    writeln!(out, "  it says: {}", evidence.replace('\n', "\n           "))?;
                }
                writeln!(out, "  do: {}", finding.fix)?;
            }
        }
        let steps: Vec<String> =
            self.path.iter().map(|step| format!("{} {} {}", step.kind, step.name, step.state)).collect();
        if !steps.is_empty() {
            writeln!(out, "  path: {}", steps.join(" → "))?;
        }
        for note in &self.notes {
            writeln!(out, "  note: {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_others_are_shown_and_not_obeyed() {
        let said = Some("\u{1b}]0;owned\u{7}denied\nsecond line".to_owned());
        let finding = Finding::new("Pod shop/p", "ImagePull", "the image cannot be pulled", "look at it").says(said);
        let verdict = Verdict {
            subject: "web".to_owned(),
            path: Vec::new(),
            blocker: Some(finding),
            notes: vec!["a\rb".to_owned()],
        };
        let shown = verdict.to_string();
        assert!(shown.contains("it says: ^[]0;owned^Gdenied\n           second line"), "{shown}");
        assert!(shown.contains("note: a^Mb"), "{shown}");
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
    }
}
