"""Every kind of trouble, in the languages of those who are told."""

from __future__ import annotations

import pytest
from django.utils.translation import override

from pilot.alerts.kinds import KINDS
from pilot.alerts.wording import sentence, title
from pilot.models import Alert


@pytest.mark.parametrize("kind", KINDS)
def test_speaks_both_languages(kind: str) -> None:
    alert = Alert(kind=kind, subject="7", detail={"name": "vendas", "count": 3, "limit": 9, "minutes": 5})
    words = []
    for language in ("en", "pt-br"):
        with override(language):
            words.append([title(alert), sentence(alert), sentence(alert, recovered=True)])

    english, portuguese = words
    assert not {text for text in english if text != "Test"} & set(portuguese)
    assert "%(" not in "".join(english + portuguese)


def test_says_what_it_can_when_a_value_is_missing() -> None:
    with override("en"):
        alert = Alert(kind="dead_letter", subject="stream:status")
        assert sentence(alert) == "An entry of stream:status could not be used and was set aside: ?"


def test_tells_of_a_kind_it_does_not_know() -> None:
    with override("en"):
        alert = Alert(kind="of_the_future", subject="7")
        assert (title(alert), sentence(alert)) == ("Alert", "7")
