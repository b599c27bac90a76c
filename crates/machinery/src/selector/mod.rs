//! Label and field selectors: the query-string forms of `labelSelector` and `fieldSelector`, and `LabelSelector` objects.

mod field;
mod label;

pub use field::{FieldOperator, FieldRequirement, FieldSelector, escape_value};
pub use label::{LabelOperator, LabelRequirement, LabelSelector, validate_label_selector};

use crate::error::FieldError;
use crate::names::aggregate;
use crate::quote::go_quote;

/// Why a selector was refused; the text is what kube-apiserver answers.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectorError {
    /// One requirement of a label selector is wrong.
    #[error("unable to parse requirement: {0}")]
    Requirement(Box<SelectorError>),
    /// A token that the grammar does not allow here.
    #[error("found '{found}', expected: {expected}")]
    Unexpected {
        /// The token.
        found: String,
        /// What the grammar allows.
        expected: &'static str,
    },
    /// `in` and `notin` want a set.
    #[error("found '{found}' expected: '('")]
    NoSet {
        /// The token that stands in the set's place.
        found: String,
    },
    /// A key or value is not a legal label.
    #[error("{}", aggregate(.0))]
    Invalid(Vec<FieldError>),
    /// `matchExpressions[].operator` is none of the four.
    #[error("{} is not a valid label selector operator", go_quote(.0))]
    UnknownOperator(String),
    /// The object is not a LabelSelector.
    #[error("{0}")]
    NotASelector(String),
    /// A field selector's term has no operator.
    #[error("invalid selector: '{selector}'; can't understand '{term}'")]
    NoOperator {
        /// The whole selector.
        selector: String,
        /// The term.
        term: String,
    },
    /// A backslash before something that needs none.
    #[error("invalid field selector: invalid escape sequence: {0}")]
    InvalidEscape(String),
    /// `,` or `=` in a field selector's value must be escaped (Go prints the number of the character).
    #[error("invalid field selector: unescaped character in value: {}", u32::from(*.0))]
    Unescaped(char),
    /// The kind cannot be selected by this field.
    #[error("field label not supported: {0}")]
    UnsupportedField(String),
    /// The kind can be selected by name and namespace only.
    #[error("{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", go_quote(.0))]
    UnknownField(String),
}
