//! Quantities against what Kubernetes makes of the same text, and laws that hold for all of them.

use proptest::prelude::*;

use super::*;

fn quantity(text: &str) -> Quantity {
    text.parse().unwrap()
}

/// Text, whole value, thousandths, canonical form: recorded from Kubernetes' own implementation, except that thousandths
/// which do not fit are cut off here and wrap around there.
const KNOWN: &[(&str, i64, i64, &str)] = &[
    ("0", 0, 0, "0"),
    ("1", 1, 1_000, "1"),
    ("+1", 1, 1_000, "1"),
    ("-1.5", -2, -1_500, "-1500m"),
    ("0.5", 1, 500, "500m"),
    (".5", 1, 500, "500m"),
    ("5.", 5, 5_000, "5"),
    ("500m", 1, 500, "500m"),
    ("1000m", 1, 1_000, "1"),
    ("100", 100, 100_000, "100"),
    ("1000", 1_000, 1_000_000, "1k"),
    ("1500", 1_500, 1_500_000, "1500"),
    ("1200000", 1_200_000, 1_200_000_000, "1200k"),
    ("1k", 1_000, 1_000_000, "1k"),
    ("1E", 1_000_000_000_000_000_000, i64::MAX, "1E"),
    ("1Ki", 1_024, 1_024_000, "1Ki"),
    ("1024Mi", 1_073_741_824, 1_073_741_824_000, "1Gi"),
    ("1.5Gi", 1_610_612_736, 1_610_612_736_000, "1536Mi"),
    ("0.5Gi", 536_870_912, 536_870_912_000, "512Mi"),
    ("512Ki", 524_288, 524_288_000, "512Ki"),
    ("0.5Ki", 512, 512_000, "512"),
    ("0.0001Ki", 1, 103, "102400u"),
    ("1.1Ki", 1_127, 1_126_400, "1126400m"),
    ("100Ei", i64::MAX, i64::MAX, "9223372036854775807"),
    ("1e3", 1_000, 1_000_000, "1e3"),
    ("1E3", 1_000, 1_000_000, "1e3"),
    ("12e1", 120, 120_000, "120"),
    ("1.5e3", 1_500, 1_500_000, "1500"),
    ("1e-3", 1, 1, "1e-3"),
    ("0.1n", 1, 1, "1n"),
    ("0.0000000001", 1, 1, "1n"),
];

#[test]
fn reads_and_prints_as_kubernetes_does() {
    for (text, value, millis, canonical) in KNOWN {
        let quantity = quantity(text);
        assert_eq!(quantity.value(), *value, "value of {text}");
        assert_eq!(quantity.milli_value(), *millis, "thousandths of {text}");
        assert_eq!(quantity.to_string(), *canonical, "canonical form of {text}");
        assert_eq!(quantity.as_written(), *text);
    }
}

#[test]
fn nonsense_is_refused() {
    for text in ["abc", "1..2", "1.2.3", "1x", "1gi", "1KI", "1e1.5", "- 1", " 1", "1 ", "1 Gi", "m500", "1µ"] {
        assert_eq!(text.parse::<Quantity>(), Err(InvalidQuantity::Shape), "{text}");
    }
    for text in ["1mi", "1e", "1ee3", "1m5", "1Ki3", "1e99999999999999999999"] {
        assert_eq!(text.parse::<Quantity>(), Err(InvalidQuantity::Suffix), "{text}");
    }
}

#[test]
fn a_number_is_needed() {
    // Kubernetes reads these as zero, but its own schema of a quantity does not let them through.
    for text in ["", "+", "-", ".", "Gi"] {
        assert_eq!(text.parse::<Quantity>(), Err(InvalidQuantity::Shape), "{text}");
    }
}

#[test]
fn spelling_does_not_matter_for_equality_and_order() {
    assert_eq!(quantity("1Gi"), quantity("1024Mi"));
    assert_eq!(quantity("1"), quantity("1000m"));
    assert!(quantity("1G") < quantity("1Gi"));
    assert!(quantity("-1") < quantity("0"));
}

#[test]
fn numbers_stay_numbers_and_text_stays_text() {
    for json in ["2", "-3", r#""2""#, r#""1024Mi""#, r#""0.5""#] {
        let quantity: Quantity = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&quantity).unwrap(), json);
    }
    assert_eq!(serde_json::from_str::<Quantity>("0.5").unwrap(), quantity("500m"));
    assert!(serde_json::from_str::<Quantity>("true").is_err());
    assert!(serde_json::from_str::<Quantity>("18446744073709551615").is_err());
}

#[test]
fn sums_keep_the_format_and_notice_overflow() {
    let sum = quantity("1Gi").checked_add(&quantity("512Mi")).unwrap();
    assert_eq!(sum.to_string(), "1536Mi");
    assert_eq!(quantity("0").checked_add(&quantity("1Gi")).unwrap().to_string(), "1Gi");
    assert_eq!(quantity("2").checked_sub(&quantity("500m")).unwrap().to_string(), "1500m");
    assert_eq!(quantity("100m").checked_mul(12).unwrap().to_string(), "1200m");
    assert_eq!(quantity("1e28").checked_mul(i64::MAX), None);
    assert_eq!(Quantity::from_bytes(262_144).to_string(), "256Ki");
    assert_eq!(Quantity::from_millis(1_500).to_string(), "1500m");
}

proptest! {
    #[test]
    fn canonical_form_means_the_same(number in "-?[0-9]{1,12}(\\.[0-9]{1,6})?", suffix in "|n|u|m|k|M|G|Ki|Mi|Gi|Ti|e-?[0-9]") {
        let written = quantity(&format!("{number}{suffix}"));
        let canonical = written.to_string();
        let again = quantity(&canonical);
        prop_assert_eq!(&again, &written);
        prop_assert_eq!(again.to_string(), canonical, "canonical form is stable");
    }

    #[test]
    fn any_text_either_parses_or_not(text in "\\PC{0,24}") {
        if let Ok(quantity) = text.parse::<Quantity>() {
            prop_assert_eq!(quantity.as_written(), text);
        }
    }

    #[test]
    fn addition_undoes_subtraction(a in any::<i64>(), b in any::<i64>()) {
        let (a, b) = (Quantity::from_millis(a), Quantity::from_millis(b));
        let sum = a.checked_add(&b).unwrap();
        prop_assert_eq!(sum.checked_sub(&b).unwrap(), a.clone());
        prop_assert_eq!(a < b, a.milli_value() < b.milli_value());
    }

    #[test]
    fn long_digits_do_no_harm(whole in "[0-9]{0,60}", fraction in "[0-9]{0,60}", suffix in "|n|E|Ei|Ki|e99999|e-99999") {
        let text = format!("{whole}.{fraction}{suffix}");
        if let Ok(quantity) = text.parse::<Quantity>() {
            let all_zero = whole.bytes().chain(fraction.bytes()).all(|digit| digit == b'0');
            prop_assert_eq!(quantity.is_zero(), all_zero, "something never becomes nothing");
        }
    }
}
