"""What a keychain entry may say, and where its values may be read: each finding by its words."""

from __future__ import annotations

import pytest

from noetl_ray.dsl.parse import check_playbook, parse_playbook

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: p}\n"
FLOW = "workflow: [{step: a}]\n"
KINDS = "static, bearer, oauth2, credential, credential_ref, env"


def found(text: str) -> list[str]:
    return [
        f"{p.severity} {p.line}:{p.column} {p.path}: {p.message}"
        + (f" ({p.hint})" if p.hint else "")
        for p in check_playbook(HEAD + text)
    ]


def test_entries_keep_their_order_and_config() -> None:
    playbook = parse_playbook(
        HEAD
        + """
keychain:
  - {name: app, kind: credential, credential: app_login}
  - name: token
    kind: oauth2
    endpoint: "{{ workload.auth_url }}"
    data: {client_id: "{{ keychain.app.client_id }}"}
  - {name: old, type: bearer, token: '{{ x }}'}
"""
        + FLOW
    )
    assert [(entry.name, entry.kind) for entry in playbook.keychain] == [
        ("app", "credential"),
        ("token", "oauth2"),
        ("old", "bearer"),
    ]
    assert playbook.keychain[2].config == {"token": "{{ x }}"}
    assert playbook.keychain[1].at.line == 7


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (
            "x",
            [
                "error 4:12 keychain[0]: a keychain entry must be a mapping with a "
                "'name' and a 'kind'"
            ],
        ),
        ("{kind: static}", ["error 4:12 keychain[0]: the keychain entry has no 'name'"]),
        (
            "{name: a.b, kind: static, map: {}}",
            [
                "error 4:19 keychain[0].name: 'a.b' cannot name a keychain entry "
                "(use letters, digits, _ and -, beginning with a letter)"
            ],
        ),
        (
            "{name: a, kind: barer, token: '{{ x }}'}",
            ["error 4:28 keychain[0].kind: unknown keychain kind 'barer' (did you mean 'bearer'?)"],
        ),
        (
            "{name: a, kind: vault}",
            [f"error 4:28 keychain[0].kind: unknown keychain kind 'vault' (kinds are {KINDS})"],
        ),
        (
            "{name: a, kind: static}",
            ["error 4:12 keychain[0]: a keychain entry of kind 'static' needs 'map'"],
        ),
        (
            "{name: a, kind: bearer}",
            ["error 4:12 keychain[0]: a keychain entry of kind 'bearer' needs 'token'"],
        ),
        (
            "{name: a, kind: oauth2}",
            ["error 4:12 keychain[0]: a keychain entry of kind 'oauth2' needs 'endpoint'"],
        ),
        (
            "{name: a, kind: env}",
            ["error 4:12 keychain[0]: a keychain entry of kind 'env' needs 'map' or 'variable'"],
        ),
        (
            "{name: a, kind: static, map: [1]}",
            ["error 4:41 keychain[0].map: 'map' must be a mapping"],
        ),
        (
            "{name: a, kind: bearer, token: '{{ x }}', endpont: u}",
            [
                "warning 4:54 keychain[0].endpont: a keychain entry has no key 'endpont' "
                "(did you mean 'endpoint'?)"
            ],
        ),
        (
            "{name: a, kind: bearer, token: '{{ x }}'}, {name: a, kind: bearer, token: '{{ x }}'}",
            [
                "error 4:62 keychain[1].name: the keychain entry 'a' is defined twice "
                "(first in line 4)"
            ],
        ),
        (
            '{name: a, kind: bearer, token: "{{ keychain.a.token }}"}',
            ["error 4:43 keychain[0].token: 'a' reads itself, which is no entry before it"],
        ),
        (
            '{name: a, kind: bearer, token: "{{ keychain.b.t }}"}, {name: b, kind: '
            "static, map: {t: 1}}",
            ["error 4:43 keychain[0].token: 'a' reads 'b', which is no entry before it"],
        ),
        (
            "{name: a, kind: bearer, token: t0k}",
            [
                "warning 4:43 keychain[0].token: 'token' stands in the playbook for everybody to "
                "read (store it with 'noetl-ray credential add' and use kind: credential)"
            ],
        ),
        (
            "{name: a, kind: static, map: {db_password: p, url: u}}",
            [
                "warning 4:55 keychain[0].map.db_password: 'db_password' stands in the playbook "
                "for everybody to read (store it with 'noetl-ray credential add' and use kind: "
                "credential)"
            ],
        ),
        (
            '{name: a, kind: bearer, token: "{{ ctx.t }}"}',
            [
                "error 4:43 keychain[0].token: a keychain entry cannot read 'ctx' "
                "(it can read workload, env and earlier entries)"
            ],
        ),
        (
            "{name: a, kind: google_id_token}",
            [
                "warning 4:28 keychain[0].kind: the keychain kind 'google_id_token' is "
                "not built in "
                "(workers need a package with an entry point 'google_id_token' in the group "
                "'noetl_ray.keychain')"
            ],
        ),
    ],
)
def test_an_entry(entry: str, expected: list[str]) -> None:
    assert found(f"keychain: [{entry}]\n{FLOW}") == expected


DECIDED = (
    "a keychain value cannot be read here: this is decided in the log (read it in "
    "the config of a task)"
)
KEPT = "a keychain value is never kept in a variable (read it in the config of each task)"


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ('when: "{{ keychain.k.t }}"', f"error 7:11 workflow[0].when: {DECIDED}"),
        ('set: {ctx.t: "{{ keychain.k.t }}"}', f"error 7:18 workflow[0].set.ctx.t: {DECIDED}"),
        (
            'next: {arcs: [{step: a, when: "{{ keychain.k.t }}"}]}',
            f"error 7:35 workflow[0].next.arcs[0].when: {DECIDED}",
        ),
        ('loop: {in: "{{ keychain.k }}"}', f"error 7:16 workflow[0].loop.in: {DECIDED}"),
        (
            'spec: {policy: {admit: [{when: "{{ keychain.k.t }}", then: {allow: true}}]}}',
            f"error 7:36 workflow[0].spec.policy.admit[0].when: {DECIDED}",
        ),
        (
            'tool: {kind: noop, set: {t: "{{ keychain.k.t }}"}}',
            f"warning 7:33 workflow[0].tool.set.t: {KEPT}",
        ),
        (
            'tool: {kind: http, url: "{{ keychain.kk.t }}"}',
            "warning 7:29 workflow[0].tool.url: the keychain has no entry 'kk' (did you mean 'k'?)",
        ),
    ],
)
def test_where_it_is_read(step: str, expected: str) -> None:
    text = (
        f"keychain: [{{name: k, kind: static, map: {{t: s}}}}]\nworkflow:\n  - step: "
        f"a\n    {step}\n"
    )
    assert expected in found(text)


def test_tasks_may_read_it() -> None:
    text = """keychain: [{name: k, kind: static, map: {t: s}}]
workflow:
  - step: a
    input: {t: "{{ keychain.k.t }}"}
    tool: {kind: http, url: "{{ keychain.k.t }}", headers: {x: "{{ keychain.k.t }}"}}
"""
    assert found(text) == []
