//! Closed sets of words: enums that read, print and describe themselves, so that a wrong word names the right ones.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserializer, Visitor};

/// An enum whose values are words on the wire.
pub trait StringEnum: Copy + 'static {
    /// Every value, in the order of [`StringEnum::WORDS`].
    const VALUES: &'static [Self];
    /// The words on the wire.
    const WORDS: &'static [&'static str];

    /// The value that a word stands for.
    fn from_word(word: &str) -> Option<Self> {
        let position = Self::WORDS.iter().position(|known| *known == word)?;
        Self::VALUES.get(position).copied()
    }
}

/// A word outside the set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown value `{value}`, expected one of {}", expected.join(", "))]
pub struct UnknownValue {
    /// The word.
    pub value: String,
    /// The words that are known.
    pub expected: &'static [&'static str],
}

/// Parses a word for [`std::str::FromStr`].
pub fn parse<T: StringEnum>(word: &str) -> Result<T, UnknownValue> {
    T::from_word(word).ok_or_else(|| UnknownValue { value: word.to_owned(), expected: T::WORDS })
}

/// Reads a word; the error names it and the words that are known.
pub fn deserialize<'de, T: StringEnum, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    struct Word<T>(PhantomData<T>);

    impl<T: StringEnum> Visitor<'_> for Word<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("one of ")?;
            for (position, word) in T::WORDS.iter().enumerate() {
                let separator = if position == 0 { "" } else { ", " };
                write!(f, "{separator}`{word}`")?;
            }
            Ok(())
        }

        fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
            T::from_word(word).ok_or_else(|| E::unknown_variant(word, T::WORDS))
        }
    }

    deserializer.deserialize_str(Word(PhantomData))
}

/// Declares an enum whose values are words on the wire.
macro_rules! string_enum {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $($(#[$variant_attribute:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_attribute])* $variant,)+
        }

        impl $name {
            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl $crate::string_enum::StringEnum for $name {
            const VALUES: &'static [Self] = &[$(Self::$variant,)+];
            const WORDS: &'static [&'static str] = &[$($word,)+];
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::string_enum::UnknownValue;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                $crate::string_enum::parse(word)
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::string_enum::deserialize(deserializer)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn schema_id() -> ::std::borrow::Cow<'static, str> {
                concat!(module_path!(), "::", stringify!($name)).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", "enum": [$($word,)+] })
            }
        }
    };
}

pub(crate) use string_enum;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::RunStrategy;
    use crate::vmi::ChangedBlockTrackingState;

    #[test]
    fn words_and_values_belong_together() {
        for (value, word) in RunStrategy::VALUES.iter().zip(RunStrategy::WORDS) {
            assert_eq!(value.as_str(), *word);
            assert_eq!(value.to_string(), *word);
            assert_eq!(word.parse(), Ok(*value));
            assert_eq!(serde_json::to_value(value).unwrap(), *word);
            assert_eq!(serde_json::from_value::<RunStrategy>((*word).into()).unwrap(), *value);
        }
        assert_eq!("".parse(), Ok(ChangedBlockTrackingState::Undefined));
    }

    #[test]
    fn an_unknown_word_is_told_with_the_known_ones() {
        let error = "Sometimes".parse::<RunStrategy>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown value `Sometimes`, expected one of Always, Halted, Manual, RerunOnFailure, Once, WaitAsReceiver"
        );
        let error = serde_json::from_str::<RunStrategy>("3").unwrap_err();
        assert!(
            error.to_string().starts_with("invalid type: integer `3`, expected one of `Always`, `Halted`"),
            "{error}"
        );
    }
}
