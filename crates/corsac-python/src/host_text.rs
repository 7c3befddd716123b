//! Texts of Python objects in the text of a graph.
//!
//! Asking an object for its text may run any code, and so must not happen while the graph is
//! borrowed. So a graph with such objects is printed twice: once to collect the questions, and once
//! with the answers.

use std::borrow::Cow;
use std::cell::RefCell;
use std::hash::{Hash, Hasher};

use corsac_ir::{ExternalId, Graph, HostText, NamedTupleClass, SourceLine};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use crate::graph::PyGraph;
use crate::resolve::{is_made_anew, name_of};

/// Property of an object that printing asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Question {
    Shown,
    Str,
    Repr,
    Annotation,
    NamedTuple,
    QualifiedName,
    SourceLine(i32),
}

enum Answer {
    Text(String),
    NamedTuple(NamedTupleClass),
    SourceLine(SourceLine),
}

/// Collects the questions, or answers them.
#[derive(Default)]
pub(crate) struct ObjectText {
    asked: RefCell<FxHashSet<(Question, ExternalId)>>,
    answers: FxHashMap<(Question, ExternalId), Answer>,
    identities: FxHashMap<ExternalId, u64>,
}

impl ObjectText {
    fn answer(&self, question: Question, id: ExternalId) -> Option<&Answer> {
        let answer = self.answers.get(&(question, id));
        if answer.is_none() {
            self.asked.borrow_mut().insert((question, id));
        }
        answer
    }

    fn text(&self, question: Question, id: ExternalId) -> Option<Cow<'_, str>> {
        match self.answer(question, id)? {
            Answer::Text(text) => Some(Cow::Borrowed(text)),
            Answer::NamedTuple(_) | Answer::SourceLine(_) => None,
        }
    }

    /// Finds the answers to the questions; returns false if there are none.
    fn find_answers(&mut self, graph: &Bound<'_, PyGraph>) -> PyResult<bool> {
        let py = graph.py();
        let asked = self.asked.take();
        let objects: Vec<_> = {
            let borrowed = graph.try_borrow()?;
            let host = borrowed.host();
            let object = |id| host.external_object(py, id);
            asked.iter().map(|&(q, id)| (q, id, object(id))).collect()
        };
        for (question, id, object) in &objects {
            if let Some(answer) = find_answer(*question, object)? {
                self.answers.insert((*question, *id), answer);
            }
        }
        Ok(!objects.is_empty())
    }

    /// Finds identities of objects. Types with parameters, and strings, are made anew each time,
    /// and so are the same if their texts are.
    fn find_identities(&mut self, graph: &Bound<'_, PyGraph>) -> PyResult<()> {
        let py = graph.py();
        let objects: Vec<_> = {
            let borrowed = graph.try_borrow()?;
            let all = borrowed.host().externals();
            all.map(|(id, object)| (id, object.clone_ref(py).into_bound(py)))
                .collect()
        };
        for (id, object) in objects {
            let identity = if is_made_anew(&object)? {
                let mut hasher = FxHasher::default();
                (object.repr()?.to_string_lossy(), true).hash(&mut hasher);
                hasher.finish()
            } else {
                object.as_ptr() as u64
            };
            self.identities.insert(id, identity);
        }
        Ok(())
    }
}

impl HostText for ObjectText {
    fn shown(&self, value: ExternalId) -> Option<Cow<'_, str>> {
        self.text(Question::Shown, value)
    }

    fn str(&self, value: ExternalId) -> Option<Cow<'_, str>> {
        self.text(Question::Str, value)
    }

    fn repr(&self, value: ExternalId) -> Option<Cow<'_, str>> {
        self.text(Question::Repr, value)
    }

    fn annotation(&self, ty: ExternalId) -> Option<Cow<'_, str>> {
        self.text(Question::Annotation, ty)
    }

    fn qualified_name(&self, value: ExternalId) -> Option<Cow<'_, str>> {
        self.text(Question::QualifiedName, value)
    }

    fn source_line(&self, code: ExternalId, offset: i32) -> Option<SourceLine> {
        match self.answer(Question::SourceLine(offset), code)? {
            Answer::SourceLine(line) => Some(line.clone()),
            Answer::Text(_) | Answer::NamedTuple(_) => None,
        }
    }

    fn named_tuple(&self, class: ExternalId) -> Option<NamedTupleClass> {
        match self.answer(Question::NamedTuple, class)? {
            Answer::NamedTuple(class) => Some(class.clone()),
            Answer::Text(_) | Answer::SourceLine(_) => None,
        }
    }

    fn identity(&self, value: ExternalId) -> Option<u64> {
        self.identities.get(&value).copied()
    }
}

fn find_answer(question: Question, object: &Bound<'_, PyAny>) -> PyResult<Option<Answer>> {
    let py = object.py();
    let text = |text: Bound<'_, PyString>| Answer::Text(text.to_string_lossy().into_owned());
    Ok(match question {
        Question::Shown => match object.getattr_opt(intern!(py, "_custom_fx_repr_fn"))? {
            Some(custom) => Some(text(custom.call0()?.cast_into::<PyString>()?)),
            None => Some(text(object.str()?)),
        },
        Question::Str => Some(text(object.str()?)),
        Question::Repr => Some(text(object.repr()?)),
        Question::Annotation => {
            let repr = py
                .import(intern!(py, "corsac.fx.node"))?
                .getattr(intern!(py, "_type_repr"))?;
            Some(text(repr.call1((object,))?.cast_into::<PyString>()?))
        }
        Question::NamedTuple => Some(Answer::NamedTuple(NamedTupleClass {
            name: object.getattr(intern!(py, "__name__"))?.extract()?,
            fields: object.getattr(intern!(py, "_fields"))?.extract()?,
        })),
        Question::QualifiedName => name_of(object)?.map(Answer::Text),
        Question::SourceLine(offset) => source_line(object, offset)?.map(Answer::SourceLine),
    })
}

/// Source line of the instruction at `offset` of a code object; for a negative offset, the line
/// that the function begins in, which is where its parameters are.
fn source_line(code: &Bound<'_, PyAny>, offset: i32) -> PyResult<Option<SourceLine>> {
    let py = code.py();
    let Some(lines) = code.getattr_opt(intern!(py, "co_lines"))? else {
        return Ok(None);
    };
    let mut line: Option<u32> = None;
    if offset < 0 {
        line = code.getattr(intern!(py, "co_firstlineno"))?.extract()?;
    } else {
        for part in lines.call0()?.try_iter()? {
            let (start, end, here): (i32, i32, Option<u32>) = part?.extract()?;
            if (start..end).contains(&offset) {
                line = here;
                break;
            }
        }
    }
    let Some(line) = line else { return Ok(None) };
    let function = match code.getattr_opt(intern!(py, "co_qualname"))? {
        Some(qualified) => qualified,
        None => code.getattr(intern!(py, "co_name"))?,
    };
    Ok(Some(SourceLine {
        file: code.getattr(intern!(py, "co_filename"))?.extract()?,
        line,
        function: function.extract()?,
    }))
}

/// Result of `print` for a graph, with Python's objects as they describe themselves.
///
/// # Errors
/// The exception that an object raised when it was asked.
pub(crate) fn with_objects<T>(
    graph: &Bound<'_, PyGraph>,
    print: impl Fn(&Graph, &ObjectText) -> T,
) -> PyResult<T> {
    let mut text = ObjectText::default();
    let printed = print(graph.try_borrow()?.ir(), &text);
    if !text.find_answers(graph)? {
        return Ok(printed);
    }
    let printed = print(graph.try_borrow()?.ir(), &text);
    Ok(printed)
}

/// As [`with_objects`], for two graphs.
pub(crate) fn with_objects_of_both<T>(
    left: &Bound<'_, PyGraph>,
    right: &Bound<'_, PyGraph>,
    print: impl Fn((&Graph, &ObjectText), (&Graph, &ObjectText)) -> T,
) -> PyResult<T> {
    let mut texts = (ObjectText::default(), ObjectText::default());
    {
        let (left, right) = (left.try_borrow()?, right.try_borrow()?);
        print((left.ir(), &texts.0), (right.ir(), &texts.1));
    }
    for (text, graph) in [(&mut texts.0, left), (&mut texts.1, right)] {
        text.find_answers(graph)?;
        text.find_identities(graph)?;
    }
    let (left, right) = (left.try_borrow()?, right.try_borrow()?);
    Ok(print((left.ir(), &texts.0), (right.ir(), &texts.1)))
}
