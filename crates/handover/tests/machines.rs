//! Whatever happens to a launcher, in whatever order: what it said it keeps.

use ferrovirt_handover::{
    Source, SourceAction, SourceInput, Target, TargetAction, TargetInput, ToSource, ToTarget, Verdict,
};
use proptest::prelude::*;

fn to_source() -> impl Strategy<Value = ToSource> {
    prop_oneof![Just(ToSource::Prepared), Just(ToSource::Started), Just(ToSource::Never("no".to_owned()))]
}

fn to_target() -> impl Strategy<Value = ToTarget> {
    prop_oneof![Just(ToTarget::Prepare), Just(ToTarget::Finish), Just(ToTarget::Query)]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    prop_oneof![Just(Verdict::Started), Just(Verdict::Never), Just(Verdict::Lost)]
}

fn source_input() -> impl Strategy<Value = SourceInput> {
    prop_oneof![
        Just(SourceInput::Linked),
        Just(SourceInput::LinkLost),
        to_source().prop_map(SourceInput::Heard),
        Just(SourceInput::Copied),
        Just(SourceInput::CopyFailed("broke".to_owned())),
        Just(SourceInput::Cancel("no".to_owned())),
        verdict().prop_map(SourceInput::Told),
    ]
}

fn target_input() -> impl Strategy<Value = TargetInput> {
    prop_oneof![
        to_target().prop_map(TargetInput::Heard),
        Just(TargetInput::LinkLost),
        Just(TargetInput::Prepared),
        Just(TargetInput::Finished),
        Just(TargetInput::Failed("broke".to_owned())),
        Just(TargetInput::Discard("no".to_owned())),
    ]
}

fn is_never(input: &SourceInput) -> bool {
    matches!(input, SourceInput::Heard(ToSource::Never(_)) | SourceInput::Told(Verdict::Never))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn a_source_finishes_once_and_goes_on_only_on_a_never(inputs in prop::collection::vec(source_input(), 0..30)) {
        let (mut machine, _) = Source::begin();
        let (mut finishes, mut never_since) = (0, false);
        let (mut resumes, mut releases) = (0, 0);
        for input in inputs {
            never_since |= finishes > 0 && is_never(&input);
            for action in machine.on(input) {
                match action {
                    SourceAction::Say(ToTarget::Finish) => finishes += 1,
                    SourceAction::Resume => {
                        prop_assert!(finishes == 0 || never_since, "it went on without a word");
                        resumes += 1;
                    }
                    SourceAction::Release => {
                        prop_assert!(finishes == 1, "it let go of a guest that nobody was given");
                        releases += 1;
                    }
                    _ => {}
                }
            }
        }
        prop_assert!(finishes <= 1);
        prop_assert!(resumes + releases <= 1);
        prop_assert_eq!(machine.is_over(), resumes + releases == 1);
    }

    #[test]
    fn a_target_says_started_or_never_and_not_both(inputs in prop::collection::vec(target_input(), 0..30)) {
        let mut machine = Target::default();
        let (mut started, mut never, mut finishes, mut finished) = (false, false, 0, false);
        for input in inputs {
            finished |= finishes > 0 && input == TargetInput::Finished;
            for action in machine.on(input) {
                match action {
                    TargetAction::Say(ToSource::Started) => {
                        prop_assert!(finished, "nothing runs");
                        started = true;
                    }
                    TargetAction::Say(ToSource::Never(_)) => never = true,
                    TargetAction::Finish => {
                        prop_assert!(!never, "it said that it never would");
                        finishes += 1;
                    }
                    TargetAction::Discard => prop_assert!(!started, "the guest runs"),
                    _ => {}
                }
            }
        }
        prop_assert!(!(started && never));
        prop_assert!(finishes <= 1);
    }
}
