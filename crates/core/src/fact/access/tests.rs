//! The rules of access, as tables.

use std::collections::BTreeSet;

use super::super::garden::GardenSlug;
use super::*;

fn entity(text: &str) -> EntityUri {
    EntityUri::parse(text).unwrap()
}

fn alice(scopes: Option<&[Scope]>) -> Principal {
    Principal {
        entity: entity("user:alice"),
        is_admin: false,
        reads: true,
        writes: true,
        scopes: scopes.map(|scopes| scopes.iter().copied().collect::<BTreeSet<_>>()),
    }
}

const MEMBER: Option<Standing> = Some(Standing::Member(GardenRole::Reader));

/// What comes of a delivery to Alice, who may read every scope unless `principal` says otherwise.
fn ruling(
    token: TokenStanding,
    principal: Option<&Principal>,
    scope: &ScopeId,
    garden: Option<Standing>,
) -> Ruling {
    rule(&Look { subscriber: &entity("user:alice"), token, principal, scope, garden })
}

#[test]
fn b_4_the_decision_table() {
    let (global, company) = (ScopeId::Global, ScopeId::One(Scope::Company));
    let atlas = ScopeId::Garden(GardenSlug::parse("atlas").unwrap());
    let (all, one) = (alice(None), alice(Some(&[Scope::Company])));
    let (blind, bob) = (
        Principal { reads: false, ..alice(None) },
        Principal { entity: entity("user:bob"), ..alice(None) },
    );
    let none = alice(Some(&[]));
    use CancelReason::*;
    use TokenStanding::*;
    let cancel = Ruling::Cancel;
    let withhold = Ruling::Withhold(Check::Garden);
    for (token, principal, scope, garden, expected) in [
        (Valid, Some(&all), &global, None, Ruling::Deliver),
        (Valid, Some(&all), &company, None, Ruling::Deliver),
        (Valid, Some(&one), &company, None, Ruling::Deliver),
        (Valid, Some(&all), &global, MEMBER, Ruling::Deliver),
        (Valid, Some(&none), &atlas, MEMBER, Ruling::Deliver),
        // Step 1: the garden is never consulted.
        (Revoked, Some(&all), &global, None, cancel(TokenRevoked)),
        (Expired, Some(&all), &global, MEMBER, cancel(TokenExpired)),
        (Unknown, Some(&all), &global, MEMBER, cancel(TokenUnknown)),
        (Revoked, None, &global, Some(Standing::Ended), cancel(TokenRevoked)),
        (Expired, Some(&none), &global, Some(Standing::Never), cancel(TokenExpired)),
        // Step 2: key and scope.
        (Valid, None, &global, None, cancel(KeyRevoked)),
        (Valid, Some(&blind), &atlas, MEMBER, cancel(KeyRevoked)),
        (Valid, Some(&bob), &global, None, cancel(KeyRevoked)),
        (Valid, Some(&one), &global, None, cancel(ScopeRevoked)),
        (Valid, Some(&none), &company, None, cancel(ScopeRevoked)),
        (Valid, Some(&none), &company, Some(Standing::Never), cancel(ScopeRevoked)),
        // Step 2: the garden.
        (Valid, Some(&all), &global, Some(Standing::Ended), cancel(MembershipEnded)),
        (Valid, Some(&all), &atlas, Some(Standing::Ended), cancel(MembershipEnded)),
        (Valid, Some(&all), &global, Some(Standing::Never), withhold),
    ] {
        let found = ruling(token, principal, scope, garden);
        assert_eq!(found, expected, "{token:?} {principal:?} {scope} {garden:?}");
    }
}

/// Every combination, held against the table in words: a delivery is made only if everything is as
/// it must be, and whatever comes first in the order decides.
#[test]
fn the_first_check_that_fails_decides_in_every_combination() {
    let principals = [Some(alice(None)), Some(alice(Some(&[]))), None];
    let gardens = [None, MEMBER, Some(Standing::Ended), Some(Standing::Never)];
    for token in [
        TokenStanding::Valid,
        TokenStanding::Revoked,
        TokenStanding::Expired,
        TokenStanding::Unknown,
    ] {
        for principal in &principals {
            for garden in gardens {
                let found = ruling(token, principal.as_ref(), &ScopeId::Global, garden);
                let failing = [
                    (Check::Token, token != TokenStanding::Valid),
                    (Check::Key, principal.is_none()),
                    (Check::Scope, principal.as_ref().is_some_and(|it| it.scopes.is_some())),
                    (Check::Garden, garden.is_some() && garden != MEMBER),
                ];
                let first = failing.iter().find(|(_, fails)| *fails).map(|(check, _)| *check);
                assert_eq!(found.check(), first, "{token:?} {principal:?} {garden:?}");
                let is_filter = matches!(found, Ruling::Withhold(_));
                let never = first == Some(Check::Garden) && garden == Some(Standing::Never);
                assert_eq!(is_filter, never, "{token:?} {principal:?} {garden:?}");
            }
        }
    }
}

#[test]
fn every_reason_has_a_word_and_a_check() {
    for reason in CancelReason::ALL {
        let is_token = reason.check() == Check::Token;
        assert_eq!(reason.code().starts_with("token_"), is_token, "{reason:?}");
        assert!(!reason.sentence().is_empty());
    }
    let codes: BTreeSet<_> = Check::ALL.iter().map(|check| check.code()).collect();
    assert_eq!(codes.len(), Check::ALL.len());
}

#[test]
fn s_26_a_gardens_facts_are_for_its_members_whatever_else_they_read() {
    let admin = Principal { is_admin: true, ..alice(None) };
    let (all, one) = (alice(None), alice(Some(&[Scope::Company])));
    let blind = Principal { reads: false, ..alice(None) };
    for (who, scope, garden, expected) in [
        (&all, Scope::Local, None, true),
        (&one, Scope::Company, None, true),
        (&one, Scope::Local, None, false),
        (&all, Scope::Local, Some(None), false),
        (&admin, Scope::Local, Some(None), false),
        (&one, Scope::Local, Some(Some(GardenRole::Reader)), true),
        (&blind, Scope::Local, Some(Some(GardenRole::Admin)), false),
        (&blind, Scope::Local, None, false),
    ] {
        assert_eq!(may_read(who, scope, garden), expected, "{who:?} {scope} {garden:?}");
    }
}

#[test]
fn s_11_who_may_follow_what() {
    let atlas = ScopeId::Garden(GardenSlug::parse("atlas").unwrap());
    let (all, one) = (alice(None), alice(Some(&[Scope::Company])));
    for (who, scope, garden, expected) in [
        (&all, &ScopeId::Global, None, true),
        (&one, &ScopeId::Global, None, false),
        (&one, &ScopeId::One(Scope::Company), None, true),
        (&one, &ScopeId::One(Scope::Team), None, false),
        (&one, &atlas, Some(Some(GardenRole::Reader)), true),
        (&all, &atlas, Some(None), false),
    ] {
        assert_eq!(may_follow(who, scope, garden), expected, "{who:?} {scope} {garden:?}");
    }
}

#[test]
fn who_may_write_where() {
    let all = alice(None);
    let reader = Principal { writes: false, ..alice(None) };
    let garden = |role| Some((Scope::Team, role));
    for (who, scope, garden, expected) in [
        (&all, Scope::Local, None, Ok(())),
        (&reader, Scope::Local, None, Err(WriteDenied::Permission)),
        (&all, Scope::Team, garden(Some(GardenRole::Admin)), Ok(())),
        (&all, Scope::Team, garden(Some(GardenRole::Writer)), Ok(())),
        (&all, Scope::Team, garden(Some(GardenRole::Reader)), Err(WriteDenied::Role)),
        (&all, Scope::Team, garden(None), Err(WriteDenied::Role)),
        (&all, Scope::Local, garden(None), Err(WriteDenied::Role)),
        (
            &all,
            Scope::Local,
            garden(Some(GardenRole::Writer)),
            Err(WriteDenied::Scope(Scope::Team)),
        ),
        (&reader, Scope::Team, garden(Some(GardenRole::Admin)), Err(WriteDenied::Permission)),
    ] {
        assert_eq!(check_write(who, scope, garden), expected, "{who:?} {scope} {garden:?}");
    }
    let admin = Principal { is_admin: true, ..alice(None) };
    assert!(may_manage(&admin, None) && may_manage(&all, Some(GardenRole::Admin)));
    assert!(!may_manage(&all, Some(GardenRole::Writer)) && !may_manage(&all, None));
    assert!(!may_manage(&reader, Some(GardenRole::Admin)));
}
