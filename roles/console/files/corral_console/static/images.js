// Images that new guests can begin with.

import { html } from "/static/lib/htm/standalone.module.js";
import { Table, Waiting, useAnswer } from "/static/parts.js";
import { bytes, hostLink, plural, shown } from "/static/words.js";

export function Images() {
  const answer = useAnswer("/api/images", 0);
  return html`<div class="title"><h1>Images</h1></div>
    ${answer.value ? html`<${Table} title="Images in the hosts' pools" empty="No host has an image. The role guests and the module virt_image bring them." columns=${["Name", "Hosts", "Size", "Contents"]} rows=${answer.value.map((image) => [
        html`<b>${shown(image.name)}</b>`,
        image.places.map((place, index) => html`${index > 0 && ", "}<a href=${hostLink(place.host)}>${place.host}</a> <span class="quiet">${shown(place.pool)}</span>`),
        bytes(Math.max(...image.places.map((place) => place.bytes))),
        html`<span class="quiet">${plural(new Set(image.places.flatMap((place) => place.contents)).size, "version")}</span>`])} />` : html`<${Waiting} answer=${answer} />`}`;
}
