//! Conditions of subscriptions: when so much work has come together that it is worth a wake.

use std::sync::Arc;

use cel::{Context, Env, Program, Value};

use crate::consumer::Backlog;
use crate::limits::CONDITION_BYTES_MAX;

/// What a condition may ask for.
const VARIABLES: [&str; 3] = ["bytes", "streams", "waited_ms"];

/// A condition over the work that waits for a consumer.
pub struct WakeCondition {
    env: Arc<Env>,
    program: Program,
}

/// The text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WakeConditionError {
    /// It is longer than it may be: what is parsed is bounded, and with it what it costs.
    #[error("a condition is at most {CONDITION_BYTES_MAX} bytes long")]
    TooLong,
    /// It cannot be read.
    #[error("the condition cannot be read: {0}")]
    Syntax(String),
    /// It asks for something that is not there.
    #[error("the condition knows `bytes`, `streams` and `waited_ms`, but not `{0}`")]
    UnknownVariable(String),
    /// It calls something.
    #[error("a condition may compare and calculate, but not call `{0}`")]
    UnknownFunction(String),
    /// It is neither true nor false.
    #[error("the condition must be true or false, like `bytes > 4096 || waited_ms > 500`")]
    NotBool,
}

impl WakeCondition {
    /// Reads a condition.
    pub fn parse(text: &str) -> Result<WakeCondition, WakeConditionError> {
        if text.len() > CONDITION_BYTES_MAX {
            return Err(WakeConditionError::TooLong);
        }
        // Without macros: nothing in here can loop.
        let env = Arc::new(Env::default().with_stdlib());
        let program = env.compile(text).map_err(|error| {
            let first = error.errors.first().map(|error| error.msg.clone());
            WakeConditionError::Syntax(first.unwrap_or_else(|| "it is incomplete".into()))
        })?;
        let references = program.references();
        if let Some(unknown) = references.variables().iter().find(|it| !VARIABLES.contains(it)) {
            return Err(WakeConditionError::UnknownVariable((*unknown).to_owned()));
        }
        // Operators are functions whose names no text can spell.
        let called = references.functions();
        if let Some(unknown) = called.iter().find(|name| !name.contains('_')) {
            return Err(WakeConditionError::UnknownFunction((*unknown).to_owned()));
        }
        let condition = WakeCondition { env, program };
        let nothing = condition.evaluate(&Backlog::default());
        let something = condition.evaluate(&Backlog { bytes: 1, streams: 1, waited_ms: 1 });
        nothing.or(something).ok_or(WakeConditionError::NotBool)?;
        Ok(condition)
    }

    /// Whether it holds. One that comes to nothing, by a division by zero for example, does not.
    pub fn holds(&self, backlog: &Backlog) -> bool {
        self.evaluate(backlog).unwrap_or(false)
    }

    fn evaluate(&self, backlog: &Backlog) -> Option<bool> {
        let mut context = Context::with_env(self.env.clone());
        let values = [backlog.bytes, backlog.streams, backlog.waited_ms];
        for (name, value) in VARIABLES.into_iter().zip(values) {
            let value = Value::Int(i64::try_from(value).unwrap_or(i64::MAX));
            context.add_variable_from_value(name, value);
        }
        match self.program.execute(&context) {
            Ok(Value::Bool(holds)) => Some(holds),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(text: &str, bytes: u64, streams: u64, waited_ms: u64) -> bool {
        let backlog = Backlog { bytes, streams, waited_ms };
        WakeCondition::parse(text).unwrap_or_else(|error| panic!("{error}")).holds(&backlog)
    }

    #[test]
    fn work_is_weighed() {
        assert!(!holds("bytes > 100", 100, 1, 0));
        assert!(holds("bytes > 100", 101, 1, 0));
        assert!(holds("streams >= 2 || waited_ms > 500", 1, 1, 501));
        assert!(holds("bytes / streams > 10 && waited_ms != 3", 100, 5, 0));
        assert!(!holds("bytes / streams > 10", 100, 0, 0));
        assert!(holds("bytes > 1 ? streams == 1 : false", 2, 1, 0));
        assert!(holds("true", 0, 0, 0));
    }

    #[test]
    fn what_is_no_condition_says_why() {
        let refused = |text: &str| match WakeCondition::parse(text) {
            Err(error) => error,
            Ok(_) => panic!("{text} is no condition"),
        };
        assert_eq!(refused("events > 1"), WakeConditionError::UnknownVariable("events".into()));
        assert_eq!(refused("bytes + 1"), WakeConditionError::NotBool);
        assert!(matches!(refused("bytes >"), WakeConditionError::Syntax(_)));
        assert!(matches!(refused(""), WakeConditionError::Syntax(_)));
        assert!(matches!(refused("size('a') > 0"), WakeConditionError::UnknownFunction(_)));
        assert!(matches!(refused("'a'.matches('b')"), WakeConditionError::UnknownFunction(_)));
        assert!(matches!(refused("[1].all(x, x > 0)"), WakeConditionError::UnknownVariable(_)));
        assert_eq!(refused(&"1+".repeat(CONDITION_BYTES_MAX)), WakeConditionError::TooLong);
    }

    #[test]
    fn deep_conditions_neither_hang_nor_overflow() {
        let deep = |text: String| {
            assert!(text.len() <= CONDITION_BYTES_MAX);
            let _ = WakeCondition::parse(&text).map(|it| it.holds(&Backlog::default()));
        };
        let half = CONDITION_BYTES_MAX / 2 - 4;
        deep(format!("{}1{} > 0", "(".repeat(half), ")".repeat(half)));
        deep(format!("{}1 > 0", "1+".repeat(half)));
        deep(format!("{}true", "!".repeat(CONDITION_BYTES_MAX - 4)));
        deep(format!("bytes{} > 0", "[0]".repeat(CONDITION_BYTES_MAX / 3 - 4)));
        deep(format!("bytes{} > 0", ".a".repeat(half - 4)));
    }
}
