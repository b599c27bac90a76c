//! Names of field managers.

use crate::error::{FieldError, FieldErrorKind};
use crate::quote::{go_quote, is_printable};

/// The longest name, in bytes.
pub const MAX_MANAGER_LENGTH: usize = 128;

/// The manager of a request: the one it names, or else the program that sent it, as its user agent tells.
pub fn manager_or_user_agent(manager: &str, user_agent: &str) -> String {
    if !manager.is_empty() {
        return manager.to_owned();
    }
    let mut name = String::new();
    for character in user_agent.split('/').next().unwrap_or_default().chars().filter(|c| is_printable(*c)) {
        if name.len() + character.len_utf8() > MAX_MANAGER_LENGTH {
            break;
        }
        name.push(character);
    }
    name
}

/// Checks a name that a client gave; `path` is the field or query parameter that carries it.
pub fn validate_field_manager(manager: &str, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if manager.len() > MAX_MANAGER_LENGTH {
        let message = format!("Too long: may not be more than {MAX_MANAGER_LENGTH} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, path, message));
    }
    for (position, character) in manager.char_indices().filter(|(_, character)| !is_printable(*character)) {
        let shown = format!("U+{:04X}", u32::from(character));
        let message =
            format!("Invalid value: {}: invalid character {shown} (at position {position})", go_quote(manager));
        errors.push(FieldError::new(FieldErrorKind::Invalid, path, message));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_agent_up_to_the_first_slash() {
        assert_eq!(manager_or_user_agent("mine", "kubectl/v1.36"), "mine");
        assert_eq!(manager_or_user_agent("", "kubectl-edit/v1.36 (linux)"), "kubectl-edit");
        assert_eq!(manager_or_user_agent("", "a\u{7}b"), "ab");
        assert_eq!(manager_or_user_agent("", ""), "");
        assert_eq!(manager_or_user_agent("", &"ü".repeat(100)).len(), 128);
    }

    #[test]
    fn names_are_short_and_printable() {
        assert!(validate_field_manager("kubectl-client-side-apply", "fieldManager").is_empty());
        let errors = validate_field_manager(&"x".repeat(129), "fieldManager");
        assert_eq!(errors[0].to_string(), "fieldManager: Too long: may not be more than 128 bytes");
        let errors = validate_field_manager("a\nb", "fieldManager");
        assert_eq!(
            errors[0].to_string(),
            "fieldManager: Invalid value: \"a\\nb\": invalid character U+000A (at position 1)"
        );
    }
}
