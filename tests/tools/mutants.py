"""Mutants of one source file: mutmut's operators, applied to one top-level statement at a time.

mutmut's own runner copies the project and rewrites whole modules, which loses the namespace package that `.cache`
provides; its operators work on syntax trees alone. Left out, because the result says little: decorators, annotations,
arguments of calls that only inform the type checker, the case of strings, strings that are text for people (they hold a
space), and dropped positional arguments. Added: negated conditions, dropped operands of `and` and `or`, and dropped
statements (`raise`, a call).
"""

from __future__ import annotations

import dataclasses
import typing as t

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation import mutators

__all__ = ["Mutant", "mutants"]

_SKIPPED = (cst.Annotation, cst.Decorator, cst.Import, cst.ImportFrom, cst.FormattedString)
_UNTOUCHED_CALLS = {"len", "isinstance", "t.cast", "dataclasses.field", "super"}
_UNTOUCHED_NAMES = {"__all__"}
_EMPTY = {"None", "True", "False"}
_REPLACED = (
    mutators.operator_string,
    mutators.operator_arg_removal,
    mutators.operator_assignment,
    mutators.operator_symmetric_string_methods_swap,
)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One statement of a module, changed in one place."""

    file: str
    line: int
    names: tuple[str, ...]  # of the function, class and method, or constants that the statement defines
    kind: str  # function, class, constant
    source: str  # of the whole statement, changed
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.before} -> {self.after}"


def mutants(source: str, file: str, only: t.Container[int] | None = None) -> list[Mutant]:
    """All mutants of a module, each different; `only` those on some lines."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    module, lines = wrapper.module, source.splitlines()
    positions = wrapper.resolve(PositionProvider)
    found: dict[str, Mutant] = {}
    for statement in module.body:
        kind = _kind(statement)
        if kind is None:
            continue
        plain = module.code_for_node(statement)
        for names, node in _nodes(statement, _names(statement)):
            # What is chosen by a condition stands before it, and is not always run.
            line = t.cast(t.Any, positions[node.test if isinstance(node, cst.IfExp) else node]).start.line
            for changed in _changed(node) if only is None or line in only else ():
                text = module.code_for_node(t.cast(cst.CSTNode, statement.deep_replace(node, changed)))
                if text == plain or text in found or not _compiles(text):
                    continue
                before, after = _difference(plain, text)
                before = before or lines[line - 1].strip()
                found[text] = Mutant(file, line, names, kind, text, before, after)
    return list(found.values())


def _kind(statement: cst.CSTNode) -> str | None:
    if isinstance(statement, cst.FunctionDef):
        return "function"
    if isinstance(statement, cst.ClassDef):
        return "class"
    if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], (cst.Assign, cst.AnnAssign)):
        value = statement.body[0].value
        # a type has no behaviour
        alias = isinstance(value, cst.Subscript) or (isinstance(value, cst.Call) and _name(value.func) == "t.TypeVar")
        return None if alias or value is None or _UNTOUCHED_NAMES & set(_names(statement)) else "constant"
    return None


def _names(statement: cst.CSTNode) -> tuple[str, ...]:
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return (statement.name.value,)
    assigned = t.cast(cst.SimpleStatementLine, statement).body[0]
    targets = (
        [assigned.target]
        if isinstance(assigned, cst.AnnAssign)
        else [each.target for each in t.cast(cst.Assign, assigned).targets]
    )
    flat = [
        part.value
        for target in targets
        for part in (target.elements if isinstance(target, cst.Tuple) else [_Part(target)])
    ]
    return tuple(name.value for name in flat if isinstance(name, cst.Name))


class _Part(t.NamedTuple):
    value: cst.BaseExpression


def _nodes(
    node: cst.CSTNode, names: tuple[str, ...], inside: bool = False
) -> t.Iterator[tuple[tuple[str, ...], cst.CSTNode]]:
    """Every node that may be changed, with the function it belongs to."""
    if isinstance(node, cst.FunctionDef) and inside and len(names) == 1:
        names = (*names, node.name.value)
    yield names, node
    for child in node.children:
        if isinstance(child, _SKIPPED) or (isinstance(node, cst.Call) and _name(node.func) in _UNTOUCHED_CALLS):
            continue
        yield from _nodes(child, names, inside or isinstance(node, cst.ClassDef))


def _changed(node: cst.CSTNode) -> t.Iterator[cst.CSTNode | cst.RemovalSentinel]:
    for kind, operator in (*mutators.mutation_operators, *_OPERATORS):
        if operator not in _REPLACED and isinstance(node, kind):
            yield from operator(node)


def _strings(node: cst.SimpleString) -> t.Iterator[cst.CSTNode]:
    """Words that are compared; text for people holds a space."""
    if not set(node.value) & set(" \n"):
        yield from list(mutators.operator_string(node))[:1]


def _arguments(node: cst.Call) -> t.Iterator[cst.CSTNode]:
    """Each argument as None; keywords left out as well."""
    if _name(node.func) in _UNTOUCHED_CALLS:
        return
    for number, argument in enumerate(node.args):
        others = node.args[:number], node.args[number + 1 :]
        if argument.star:
            continue
        if not (isinstance(argument.value, cst.Name) and argument.value.value == "None"):
            yield node.with_changes(args=[*others[0], argument.with_changes(value=cst.Name("None")), *others[1]])
        if argument.keyword:
            yield node.with_changes(args=[*others[0], *others[1]])


def _assignments(node: cst.Assign | cst.AnnAssign) -> t.Iterator[cst.CSTNode]:
    if not (isinstance(node.value, cst.Name) and node.value.value in _EMPTY):
        yield from mutators.operator_assignment(node)


def _methods(node: cst.Call) -> t.Iterator[cst.CSTNode]:
    if not _name(node.func).endswith("find"):
        yield from mutators.operator_symmetric_string_methods_swap(node)


def _conditions(node: cst.If | cst.CompIf) -> t.Iterator[cst.CSTNode]:
    """Negated, where no other operator turns it round."""
    if isinstance(node.test, (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.NamedExpr)):
        test = node.test.with_changes(lpar=[cst.LeftParen(), *node.test.lpar], rpar=[*node.test.rpar, cst.RightParen()])
        yield node.with_changes(test=cst.UnaryOperation(cst.Not(), test))


def _operands(node: cst.BooleanOperation) -> t.Iterator[cst.CSTNode]:
    """One side alone."""
    for side in (node.left, node.right):
        yield side.with_changes(lpar=[*node.lpar, *side.lpar], rpar=[*side.rpar, *node.rpar])


def _statements(node: cst.Expr | cst.Raise) -> t.Iterator[cst.CSTNode]:
    """Dropped."""
    if isinstance(node, cst.Raise) or isinstance(node.value, (cst.Call, cst.Yield)):
        yield cst.Pass()


_OPERATORS: mutators.OPERATORS_TYPE = [
    (cst.SimpleString, _strings),
    (cst.Call, _arguments),
    (cst.Call, _methods),
    (cst.Assign, _assignments),
    (cst.AnnAssign, _assignments),
    (cst.If, _conditions),
    (cst.CompIf, _conditions),
    (cst.BooleanOperation, _operands),
    (cst.Expr, _statements),
    (cst.Raise, _statements),
]


def _name(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_name(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec", dont_inherit=True)
    except SyntaxError:
        return False
    return True


def _difference(before: str, after: str) -> tuple[str, str]:
    """The lines that differ, without their indentation."""
    old, new = before.splitlines(), after.splitlines()
    first = next(
        (number for number, (one, other) in enumerate(zip(old, new, strict=False)) if one != other),
        min(len(old), len(new)),
    )
    last = 0
    while last < min(len(old), len(new)) - first and old[-1 - last] == new[-1 - last]:
        last += 1
    return tuple(" ".join(line.strip() for line in text[first : len(text) - last]) for text in (old, new))  # type: ignore[return-value]
