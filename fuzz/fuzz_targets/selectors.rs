//! Label and field selectors in query form, and label selectors as objects.
//!
//! Input: a selector and an object with labels, separated by `---`.
#![no_main]

use std::borrow::Cow;

use ferrovirt_fuzz::parts;
use ferrovirt_machinery::json::parse_strict;
use ferrovirt_machinery::selector::{FieldSelector, LabelSelector, validate_label_selector};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some([selector, object]) = parts(input) else { return };
    let object = parse_strict(object.as_bytes()).map(|parsed| parsed.value).unwrap_or_default();
    if let Ok(parsed) = LabelSelector::parse(selector) {
        let again = LabelSelector::parse(&parsed.to_string()).expect("what is printed can be read");
        assert_eq!(again.matches_object(&object), parsed.matches_object(&object), "and means the same");
    }
    if let Ok(parsed) = FieldSelector::parse(selector) {
        let again = FieldSelector::parse(&parsed.to_string()).expect("what is printed can be read");
        let lookup = |path: &str| {
            let found = path.split('.').try_fold(&object, |value, part| value.get(part));
            Cow::Owned(found.and_then(|value| value.as_str()).unwrap_or_default().to_owned())
        };
        assert_eq!(again.matches(lookup), parsed.matches(lookup), "and means the same");
        let _ = parsed.check(&["metadata.name"]);
    }
    if let Ok(parsed) = LabelSelector::from_object(&object) {
        let _ = parsed.matches_object(&object);
    }
    let _ = validate_label_selector(&object, "spec.selector");
});
