//! A search through all states of the small world, breadth first, so that whatever breaks a law
//! is found by the shortest way to it.
//!
//! What may reach a consumer depends only on its place and on the streams. That is asked of the
//! machine once for each of them, and remembered; the search combines the answers.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt::Write;

use reveille_core::{Offset, StreamPath};

use crate::laws::Verdict;
use crate::settle::{WAYS, settle};
use crate::world::{APPENDS_MAX, Place, Reach, Rules, ground, places, streams};

/// The number of a place in the list of all that were met.
type PlaceId = usize;

/// The tails of both streams.
type Tails = [Option<Offset>; 2];

/// A state of the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct World {
    places: [PlaceId; 2],
    tails: Tails,
    crashed: bool,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Append(usize),
    Crash,
    /// Something reaches one of the consumers.
    Reach(usize, Reach),
}

/// A law that was broken, and by what; nothing, if by the state itself.
type Broken<By> = (Option<By>, String);

/// What can become of a place while the streams are as they are.
#[derive(Default)]
struct Future {
    reached: Vec<(Reach, PlaceId)>,
    grown: [PlaceId; 2],
    crashed: PlaceId,
    broken: Option<Broken<Reach>>,
}

/// All places of one of the consumers.
#[derive(Default)]
struct Life {
    places: Vec<Place>,
    known: HashMap<Vec<u8>, PlaceId>,
    futures: HashMap<(PlaceId, Tails), Future>,
}

pub(crate) struct Search {
    rules: Rules,
    lives: [Life; 2],
    paths: [StreamPath; 2],
    seen: HashSet<World>,
    /// How each state was first reached: from which, and by what.
    ways: Vec<(usize, Move)>,
    pub(crate) transitions: usize,
}

impl Search {
    /// Looks at everything. `Err` tells what happened until a law was broken.
    pub(crate) fn over(rules: Rules) -> Result<Search, String> {
        let [(own, no_tail), (shared, zero)] = streams();
        let mut search = Search {
            rules,
            lives: Default::default(),
            paths: [own, shared],
            seen: HashSet::new(),
            ways: Vec::new(),
            transitions: 0,
        };
        let [first, second] = places();
        let places = [search.lives[0].meet(first), search.lives[1].meet(second)];
        let start = World { places, tails: [no_tail, zero], crashed: false };
        search.seen.insert(start);
        let mut queue = VecDeque::from([(0, start)]);
        while let Some((from, world)) = queue.pop_front() {
            let moves = search.moves(world);
            let moves = moves.map_err(|(last, law)| search.story(from, last, &law))?;
            search.transitions += moves.len();
            for (a_move, next) in moves {
                if search.seen.insert(next) {
                    search.ways.push((from, a_move));
                    queue.push_back((search.ways.len(), next));
                }
            }
        }
        Ok(search)
    }

    pub(crate) fn states(&self) -> usize {
        self.seen.len()
    }

    /// How many different places each of the consumers was found at.
    pub(crate) fn lives(&self) -> [usize; 2] {
        [self.lives[0].places.len(), self.lives[1].places.len()]
    }

    /// Everything that may happen next, and what the world becomes by it.
    fn moves(&mut self, world: World) -> Result<Vec<(Move, World)>, Broken<Move>> {
        let mut moves = Vec::with_capacity(32);
        let (mut crashed, mut grown) = (world, [world; 2]);
        crashed.crashed = true;
        for (stream, after) in grown.iter_mut().enumerate() {
            after.tails[stream] = Some(world.tails[stream].unwrap_or_default().plus(1));
        }
        for (at, life) in self.lives.iter_mut().enumerate() {
            let future = life.future(&self.rules, at, &self.paths, world.places[at], world.tails);
            if let Some((reach, law)) = &future.broken {
                return Err((reach.map(|reach| Move::Reach(at, reach)), law.clone()));
            }
            crashed.places[at] = future.crashed;
            for (after, place) in grown.iter_mut().zip(future.grown) {
                after.places[at] = place;
            }
            for (reach, place) in &future.reached {
                let mut after = world;
                after.places[at] = *place;
                moves.push((Move::Reach(at, *reach), after));
            }
        }
        for (stream, after) in grown.into_iter().enumerate() {
            if after.tails[stream] <= Some(Offset::new(APPENDS_MAX)) {
                moves.push((Move::Append(stream), after));
            }
        }
        if !world.crashed {
            moves.push((Move::Crash, crashed));
        }
        Ok(moves)
    }

    /// What happened, from the beginning.
    fn story(&self, state: usize, last: Option<Move>, law: &str) -> String {
        let mut moves: Vec<Move> = last.into_iter().collect();
        let mut at = state;
        while at > 0 {
            let (from, a_move) = self.ways[at - 1];
            moves.push(a_move);
            at = from;
        }
        let mut story = format!("{law}, after:");
        for a_move in moves.iter().rev() {
            match a_move {
                Move::Append(stream) => write!(story, "\n  {} grows", self.paths[*stream]),
                Move::Crash => write!(story, "\n  crash"),
                Move::Reach(at, reach) => write!(story, "\n  consumer {at}: {reach:?}"),
            }
            .expect("a text can be written");
        }
        story
    }
}

impl Life {
    fn meet(&mut self, place: Place) -> PlaceId {
        let next = self.places.len();
        let id = *self.known.entry(place.key()).or_insert(next);
        if id == next {
            self.places.push(place);
        }
        id
    }

    fn future(
        &mut self,
        rules: &Rules,
        at: usize,
        paths: &[StreamPath; 2],
        id: PlaceId,
        tails: Tails,
    ) -> &Future {
        if !self.futures.contains_key(&(id, tails)) {
            let mut future = Future::default();
            let place = self.places[id].clone();
            let named = [(paths[0].clone(), tails[0]), (paths[1].clone(), tails[1])];
            if let Err(law) = comes_to_rest(rules, &place, &named) {
                future.broken = Some((None, law));
            }
            for reach in place.reaches(rules) {
                match place.reach(rules, at, &named, reach) {
                    Ok(None) => {}
                    Ok(Some(next)) => future.reached.push((reach, self.meet(next))),
                    Err(law) => future.broken = Some((Some(reach), law)),
                }
            }
            future.grown = [0, 1].map(|stream: usize| self.meet(place.grown(&paths[stream])));
            future.crashed = self.meet(place.crashed());
            self.futures.insert((id, tails), future);
        }
        &self.futures[&(id, tails)]
    }
}

fn comes_to_rest(rules: &Rules, place: &Place, tails: &crate::ground::Tails) -> Verdict {
    let ground = ground(rules, tails);
    WAYS.iter().try_for_each(|way| {
        let settled = settle(&ground, &place.consumer, place.owed_input(), *way);
        settled.map_err(|law| format!("{way:?}: {law}"))
    })
}
