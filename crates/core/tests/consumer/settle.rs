//! L1 to L3 as one question: does a consumer come to rest, if it is only treated fairly?

use reveille_core::Millis;
use reveille_core::consumer::{
    Ack, Answer, Callback, Consumer, Input, Phase, Rejected, Stage, Transition, WakeBy,
};

use crate::ground::Ground;
use crate::laws::{Verdict, check, ensure};

/// No fair life takes longer to come to rest.
const STEPS_MAX: u32 = 10;

/// How the endpoint behaves from now on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It answers, and reports later that everything is done.
    Reports,
    /// It answers that everything is done.
    AnswersDone,
    /// It says nothing until a time has come, and reports then.
    SilentOnce,
    /// The server was restarted: no attempt is on its way.
    Restarted,
}

pub(crate) const WAYS: [Way; 4] = [Way::Reports, Way::AnswersDone, Way::SilentOnce, Way::Restarted];

/// Lets time pass until the consumer rests with nothing pending. `owed` is what the consumer has
/// yet to hear of: a stream has grown, or nobody is paused any more.
pub(crate) fn settle(
    start: &Ground<'_>,
    consumer: &Consumer,
    owed: Option<Input>,
    way: Way,
) -> Verdict {
    let mut ground = *start;
    let mut consumer = consumer.clone();
    let (mut owed, mut silent) = (owed, way == Way::SilentOnce);
    for _ in 0..STEPS_MAX {
        let input = match consumer.phase {
            Phase::Gone(_) => return Ok(()),
            Phase::Idle { wake_at: None } if !ground.is_pending(&consumer) => {
                return everything_is_acknowledged(&ground, &consumer);
            }
            Phase::Idle { wake_at: None } => {
                let unheard = owed.take();
                unheard.ok_or("L1: work is pending and nobody will ever be told")?
            }
            Phase::Idle { wake_at: Some(at) } => due(&mut ground, at),
            Phase::Waking { stage: Stage::Paused { until }, .. } => due(&mut ground, until),
            Phase::Waking { stage: Stage::Sent { until }, .. } | Phase::Live { until }
                if silent && until != Millis::NEVER =>
            {
                silent = false;
                ground.now = ground.now.max(until);
                Input::Timer { in_flight: true }
            }
            Phase::Waking { stage: Stage::Sent { until }, .. }
                if way == Way::Restarted && until > ground.now && until != Millis::NEVER =>
            {
                let told = due(&mut ground, until);
                consumer = taken(&ground, &consumer, &told)?;
                answer(&ground, &consumer, way)
            }
            Phase::Waking { .. } => answer(&ground, &consumer, way),
            Phase::Live { .. } => all_done(&ground, &consumer),
        };
        ground.fresh.0 = [0xff; 12];
        ground.fresh.0[..8].copy_from_slice(&(consumer.epoch + 1).to_be_bytes());
        consumer = taken(&ground, &consumer, &input)?;
    }
    Err(format!("L1, L2: still {:?} after {STEPS_MAX} fair steps", consumer.phase))
}

fn due(ground: &mut Ground<'_>, at: Millis) -> Input {
    ground.now = ground.now.max(at);
    Input::Timer { in_flight: false }
}

fn taken(ground: &Ground<'_>, consumer: &Consumer, input: &Input) -> Result<Consumer, String> {
    let outcome: Result<Transition, Rejected> = ground.step(consumer, input);
    check(ground, consumer, input, &outcome)?;
    match outcome {
        Ok(step) => Ok(step.consumer),
        Err(refused) => Err(format!("a fair {input:?} is refused: {refused}")),
    }
}

fn answer(ground: &Ground<'_>, consumer: &Consumer, way: Way) -> Input {
    let Phase::Waking { attempt, .. } = consumer.phase else {
        return Input::Timer { in_flight: true };
    };
    let answer = match ground.policy.wake_by {
        WakeBy::Pull => return Input::Claim { worker: "fair".into() },
        WakeBy::Webhook if way == Way::AnswersDone => Answer::Done(ground.announced(consumer)),
        WakeBy::Webhook => Answer::Accepted,
    };
    Input::Answered { epoch: consumer.epoch, attempt, answer }
}

/// The report of a consumer that has read everything there is.
pub(crate) fn all_done(ground: &Ground<'_>, consumer: &Consumer) -> Input {
    let all = ground.announced(consumer).into_iter();
    let acks = all.map(|it| Ack {
        path: it.path.as_str().into(),
        offset: Some(Some(it.tail)),
        from: None,
    });
    let acks = acks.collect();
    let wake_id = consumer.wake_id.map(Ok);
    let epoch = consumer.epoch;
    Input::Callback(Callback { epoch, wake_id, acks, done: true, ..Callback::default() })
}

fn everything_is_acknowledged(ground: &Ground<'_>, consumer: &Consumer) -> Verdict {
    let behind = consumer.links.iter().any(|link| ground.tail(&link.path) > link.acked);
    ensure(!behind && consumer.deadline().is_none(), "whoever rests has read everything")
}
