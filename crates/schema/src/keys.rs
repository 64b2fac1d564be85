//! Every key by a short name: what the domains call it is in their own files.

use bytes::Bytes;

use crate::{auth, meta};

pub use crate::audit::{
    all_head_keys as audit_heads, all_row_keys as all_audit_rows, head_key as audit_head,
    parse_head_key as parse_audit_head, parse_row_key as parse_audit_row, row_key as audit_row,
    row_keys as audit_rows,
};
pub use crate::auth::{api_key, api_keys, parse_api_key};
pub use crate::deliveries::{
    TenantDeadLetter, all_counts_keys as all_counts, all_ended_hook_keys as all_ended_hooks,
    all_event_keys as all_events, all_hook_keys as hooks, all_replay_keys as all_replays,
    all_waiting_keys as all_waiting, counts_key as counts, dead_letter_key as dead_letter,
    dead_letter_keys as dead_letters, delivery_key as delivery, delivery_keys as deliveries,
    ended_hook_key as ended_hook, ended_hook_keys as ended_hooks, event_key as event,
    event_keys as events, fan_out_key as fan_out, fan_out_keys as fan_outs, held_key as held,
    held_keys as all_held, hook_key as hook, hook_keys as hooks_of, hook_note_key as hook_note,
    hook_note_keys as hook_notes, hook_version_key as hook_version,
    hook_version_keys as hook_versions, lane_key as lane, lane_keys as lanes,
    parse_counts_key as parse_counts, parse_dead_letter_key as parse_dead_letter,
    parse_delivery_key as parse_delivery, parse_event_no as parse_event, parse_event_source,
    parse_held_key as parse_held, parse_waiting_key as parse_waiting, replay_key as replay,
    replay_keys as replays, tenant_dead_letter_keys as tenant_dead_letters, waiting_key as waiting,
    waiting_keys as waiting_in,
};
pub use crate::documents::{
    all_change_head_keys as all_change_heads, all_document_keys as all_documents,
    all_index_entry_keys as all_index_entries, all_index_keys as all_indexes,
    all_rules_keys as all_rules, all_write_outcome_keys as all_write_outcomes,
    change_head_key as change_head, change_place_key as change_place,
    change_place_keys as change_places, document_bound, document_key as document,
    document_keys as documents, document_keys_of as documents_of, index_entry, index_entry_bound,
    index_key as index, index_keys as indexes, parse_change_head_key as parse_change_head,
    parse_change_place_key as parse_change_place, parse_document_key as parse_document,
    parse_index_entry_id, parse_index_key as parse_index, parse_rules_key as parse_rules,
    rules_key as rules, tenant_document_keys as tenant_documents,
    write_outcome_key as write_outcome,
};
pub use crate::events::{
    event_id_key as event_id, event_ids_key as event_ids, ingested_key as ingested,
    later_key as later, later_keys_until as later_until, parse_later_key as parse_later,
};
pub use crate::facts::{
    all_cancelled_keys as all_cancelled, all_fact_keys as all_facts,
    all_garden_keys as all_gardens, all_membership_keys as all_memberships,
    all_slot_keys as all_slots, all_token_keys as all_tokens, cancelled_key as cancelled,
    card_key as card, change_key as fact_change, clock_key as fact_clock, fact_key as fact,
    fact_keys as facts, fact_of_key as fact_of, fact_of_keys as facts_of, garden_key as garden,
    garden_of_key as garden_of, garden_of_keys as gardens_of, membership_key as membership,
    membership_keys as memberships, parse_cancelled_key as parse_cancelled,
    parse_fact_key as parse_fact, parse_fact_of_key as parse_fact_of,
    parse_garden_key as parse_garden, parse_garden_of_key as parse_garden_of,
    parse_membership_key as parse_membership, parse_slot_key as parse_slot,
    parse_token_key as parse_token, slot_key as slot, slot_keys as slots, token_key as token,
};
pub use crate::streams::{
    parse_stream_key as parse_stream, producer_key as producer, producer_keys as producers,
    stream_key as stream, stream_prefix,
};
pub use crate::wakes::{
    ConsumerKey, all_follower_keys as all_followers, all_resting_keys as all_resting,
    backlog_key as backlog, backlog_keys as backlogs, consumer_key as consumer,
    consumer_keys as consumers, fan_out_key as subscription_fan_out, follower_key as follower,
    follower_keys as followers, link_key as link, link_keys as links,
    parse_consumer_key as parse_consumer, parse_follower_key as parse_follower,
    parse_linked_path as parse_linked, parse_resting_key as parse_resting, resting_key as resting,
    subscription_key as subscription, subscription_keys as subscriptions,
};

pub use crate::triggers::{
    all_secret_keys as all_trigger_secrets, dry_run_hour_key as dry_run_hour,
    dry_run_hour_keys as dry_run_hours, dry_run_samples_key as dry_run_samples,
    evaluation_errors_key as evaluation_errors, health_key as trigger_health,
    parse_secret_key as parse_trigger_secret, secret_key as trigger_secret,
    secret_keys as trigger_secrets,
};

/// The names under the meta tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meta {
    Probe,
    NextStreamId,
    TokenKey,
    SigningKeys,
    TriggerKeys,
}

pub fn meta(name: Meta) -> Bytes {
    match name {
        Meta::Probe => meta::probe_key(),
        Meta::NextStreamId => meta::next_stream_id_key(),
        Meta::TokenKey => auth::token_key(),
        Meta::SigningKeys => auth::signing_keys(),
        Meta::TriggerKeys => auth::trigger_keys(),
    }
}
