//! How rules are written down and applied: one row for each rule, with its name, its field, the type of cause and the judgement.

use std::fmt;

use super::{Cause, Reason};

/// A field's place: a chain that is only printed when something is wrong with the field.
#[derive(Clone, Copy)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    /// A field of the object itself, or several of them with dots between.
    pub(super) const fn root(field: &'a str) -> Self {
        Self { parent: None, step: Step::Field(field) }
    }

    /// A field of this one.
    pub(super) const fn field(&'a self, field: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Field(field) }
    }

    /// An element of this list.
    pub(super) const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Field("") => Ok(()),
            Step::Field(field) if self.parent.is_none() => f.write_str(field),
            Step::Field(field) => write!(f, ".{field}"),
        }
    }
}

/// What is wrong, said after the field's name; `None` when nothing is.
pub(super) type Problem = Option<String>;

/// A rule: its name, the field below its subject, the type of cause, the judgement.
pub(super) type Row<F> = (&'static str, &'static str, Reason, F);

/// The name of a rule, the field that it is about and the type of its causes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleInfo {
    /// The name, such as `hostname-is-a-dns-label`.
    pub name: &'static str,
    /// The field below the thing that the rule is about; empty for that thing itself.
    pub field: &'static str,
    /// The type of cause.
    pub reason: Reason,
}

/// The rules of a table.
pub(super) fn names<F>(rows: &[Row<F>]) -> impl Iterator<Item = RuleInfo> {
    rows.iter().map(|(name, field, reason, _)| RuleInfo { name, field, reason: *reason })
}

/// What was found to be wrong.
#[derive(Default)]
pub(super) struct Findings {
    pub(super) causes: Vec<Cause>,
}

impl Findings {
    /// Applies every rule of a table to one subject.
    pub(super) fn apply<T, F: Fn(&T) -> Problem>(&mut self, rows: &[Row<F>], subject: &T, path: &Path<'_>) {
        for (rule, field, reason, judge) in rows {
            if let Some(problem) = judge(subject) {
                self.add(rule, *reason, &path.field(field), &problem);
            }
        }
    }

    /// Notes one cause.
    pub(super) fn add(&mut self, rule: &'static str, reason: Reason, path: &Path<'_>, problem: &str) {
        let field = path.to_string();
        let message = format!("{field} {problem}");
        self.causes.push(Cause { rule, reason, field, message });
    }
}

/// A problem when something holds that must not.
pub(super) fn when(wrong: bool, problem: impl FnOnce() -> String) -> Problem {
    wrong.then(problem)
}

/// A problem that needs no details, when something holds that must not.
pub(super) fn if_so(wrong: bool, problem: &str) -> Problem {
    wrong.then(|| problem.to_owned())
}
