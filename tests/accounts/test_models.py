"""Time zones: what a tenant's name for one comes to, whatever is stored."""

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from structlog.testing import capture_logs

from accounts.models import Tenant, zone_of


def test_knows_the_zone_of_a_tenant_and_of_a_name() -> None:
    assert zone_of(Tenant(time_zone="America/Sao_Paulo")) == ZoneInfo("America/Sao_Paulo")
    assert zone_of("Asia/Tokyo") == ZoneInfo("Asia/Tokyo")


@pytest.mark.parametrize(
    "name", ["Mars/Base", "", "America", "../../etc/passwd", "/etc/passwd", "a\x00b", "é", "x" * 300]
)
def test_takes_utc_for_what_is_no_zone_and_says_so(name: str) -> None:
    with pytest.raises(ValidationError):
        Tenant(name="Loja", slug="loja", time_zone=name).full_clean(validate_unique=False)

    with capture_logs() as lines:
        assert zone_of(name) == ZoneInfo("UTC")

    assert [(line["event"], line["log_level"]) for line in lines] == [("tenant.time_zone_unknown", "warning")]
